"""The truth server as a Python value: built by gcc, started on a core of its own, its log read."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("truth_server.c")


@dataclass(frozen=True, slots=True)
class Truth:
    """A server that runs. Times: CLOCK_MONOTONIC, ns."""

    url: str
    started_ns: int
    log: Path
    process: "subprocess.Popen[str]"

    def seen(self, since_ns: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """When requests arrived from a moment on, and their true time to the first token in ms."""
        lines = self.log.read_text().splitlines()
        pairs = np.array([line.split()[:2] for line in lines], dtype=np.int64).reshape(-1, 2)
        pairs = pairs[pairs[:, 0] >= since_ns]
        return pairs[:, 0], (pairs[:, 1] - pairs[:, 0]) / 1e6


@cache
def built() -> Path:
    """The server's program."""
    program = Path(tempfile.mkdtemp(prefix="tailgate-truth-")) / "truth_server"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", program, SOURCE], check=True)
    return program


def on_core(core: int | None) -> list[str]:
    """What to put before a command so that it runs on one core; nothing on a machine with one."""
    usable = sorted(os.sched_getaffinity(0))
    return [] if core is None or len(usable) < 2 else ["taskset", "-c", str(usable[core])]


@contextmanager
def truth_server(log: Path, *options: str, core: int | None = None) -> Iterator[Truth]:
    """The server with these options, for the block; its log is whole when it has ended."""
    process = subprocess.Popen(
        [*on_core(core), str(built()), str(log), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        port, started_ns = process.stdout.readline().split()
        yield Truth(f"http://127.0.0.1:{port}", int(started_ns), log, process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
