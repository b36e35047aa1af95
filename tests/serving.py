"""Real reference servers for tests: `python -m target serve` in a process of its own."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Target:
    """A server that is ready."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def started_target(
    *args: str, timeout_s: float = 120.0, python: str = sys.executable
) -> Iterator[Target]:
    """Start `python -m target serve --port 0 ARGS`, wait for its ready line, stop it at the end."""
    process = subprocess.Popen(
        [python, "-m", "target", "serve", "--port", "0", *args],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    alarm = threading.Timer(timeout_s, process.kill)  # so that readline() ends in any case
    alarm.start()
    try:
        line = process.stdout.readline()
        alarm.cancel()
        ready = re.match(r"tailgate target ready on (http://\S+)", line)
        if not ready:
            process.kill()
            raise RuntimeError(f"no ready line: {line!r}\n{process.stderr.read()}")
        yield Target(ready[1], process)
    finally:
        alarm.cancel()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@contextmanager
def running_target(*args: str, timeout_s: float = 120.0) -> Iterator[str]:
    """The base URL of a target that runs for the block: `running_target("--engine", "sim")`."""
    with started_target(*args, timeout_s=timeout_s) as target:
        yield target.url
