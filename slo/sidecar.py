"""The GPU sidecar beside a run: a process of this machine, or one that runs on the target's."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slo import rundir
from slo.children import child
from slo.sidecar_client import pull
from slo.target_probe import TargetError

LOG = "sidecar.log"
PERIOD_S = 0.5
START_S = 5.0
LAST_PULL_S = 30.0


@contextmanager
def beside(where: str, directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Sample the GPU into the run directory while the block runs; `where` is local, off or a URL.

    A run without GPU samples is still a run: what goes wrong here is said, and never raised.
    """
    if where == "off":
        yield
    elif where == "local":
        with _local(directory, say):
            yield
    else:
        with _remote(where, directory, say):
            yield


@contextmanager
def _local(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    argv = [sys.executable, "-m", "target.nvml_sidecar"]
    argv += ["--out", str(directory / rundir.GPU), "--period", str(PERIOD_S)]
    path = directory / LOG
    with path.open("wb") as log, child(argv, stdout=log) as process:
        _wait_for_header(directory / rundir.GPU, process)
        yield
        code = process.poll()
    if code is not None and code != 0:
        told = path.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        say(f"the GPU was not measured: the sidecar ended with {code}: {told[-1]}")
    elif path.stat().st_size == 0:
        path.unlink()


def _wait_for_header(path: Path, process: "subprocess.Popen[bytes]") -> None:
    """Let NVML start, which takes seconds at times: the run's beginning is to have samples too."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.02)


@contextmanager
def _remote(url: str, directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    stop = threading.Event()

    def pulling() -> None:
        try:
            pull(url, directory / rundir.GPU, stop)
        except TargetError as error:
            say(f"the GPU is not measured: {error}")

    thread = threading.Thread(target=pulling, name="sidecar-puller", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LAST_PULL_S)
