"""Locust as a process: started, waited for, and what it left."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from slo.record import Record
from slo.rundir import Run, read_records, read_run
from tests.serving import ROOT

SHORT = ("--rate", "20/s", "--duration", "1s", "--warmup", "0.5s", "--max-tokens", "8")


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def run(self) -> Run:
        return read_run(self.out)

    @property
    def records(self) -> list[Record]:
        return sorted(read_records(self.out), key=lambda record: record.seq)

    @property
    def complaint(self) -> list[str]:
        assert "Traceback" not in self.stderr
        return [line for line in self.stderr.splitlines() if line.startswith("locust: ")]


@contextmanager
def locust(out: Path, *options: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"]
    if "--worker" not in options:
        command += ["--out", str(out), "--only-summary"]
    if "--worker" not in options and "--autostart" not in options:
        command += ["--headless"]
    command += options
    if "--processes" in options:
        port = free_port()  # two masters at once must not meet at one port
        command += ["--master-bind-port", port, "--master-port", port]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], out: Path, timeout_s: float = 60.0) -> Ended:
    stdout, stderr = process.communicate(timeout=timeout_s)
    return Ended(process.returncode, stdout, stderr, out)


def load(out: Path, *options: str) -> Ended:
    with locust(out, *options) as process:
        return ended(process, out)


def wait_for_records(out: Path, count: int) -> None:
    by = time.monotonic() + 30
    while time.monotonic() < by:
        path = out / "requests.jsonl"
        if path.exists() and len(path.read_bytes().splitlines()) >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{out} never had {count} records")


def load_all(outs: Sequence[Path], *each: Sequence[str]) -> list[Ended]:
    """Several runs at the same time, each with its options."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(locust(out, *options))
            for out, options in zip(outs, each, strict=True)
        ]
        return [ended(one, out) for one, out in zip(processes, outs, strict=True)]


def adds_up(run: Run) -> bool:
    counts = run.counts
    ends = counts.completed + counts.failed + counts.dropped + counts.not_started
    return counts.scheduled == ends
