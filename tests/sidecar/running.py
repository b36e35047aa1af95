"""A real sidecar process over a driver compiled from C, and what it wrote so far."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("fake_nvml.c")

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the fake driver")

TWO_GPUS = """\
gpus=2
0.name=Fake A
0.util=10,5
0.mem=1048576000,104857600,629145600,314572800
0.power=100000
0.energy=5000
0.temperature=50
0.clocks=1500,9000
0.reasons=0x1
0.process=4242,268435456
1.name=Fake B
1.util=20,6
"""


@dataclass
class Sidecar:
    """One process and its file."""

    process: subprocess.Popen[str]
    out: Path

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The whole lines that are in the file now."""
        whole = self.out.read_text().rpartition("\n")[0] if self.out.exists() else ""
        records = [json.loads(line) for line in whole.splitlines()]
        return [one for one in records if kind in (None, one["type"])]

    def until(self, seen: Callable[[list[dict[str, Any]]], Any], timeout_s: float = 20) -> Any:
        """Wait for a state of the file."""
        deadline = time.monotonic() + timeout_s
        while not (found := seen(self.records())):
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {self.records()[-3:]}"
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        return found

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Its exit code, and the seconds that it took to leave."""
        began = time.monotonic()
        self.process.send_signal(how)
        code = self.process.wait(20)
        return code, time.monotonic() - began


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "target.nvml_sidecar", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@contextmanager
def sidecar(out: Path, *arguments: object, **env: str) -> Iterator[Sidecar]:
    """A sidecar that is ended with the block, however it ends."""
    process = subprocess.Popen(
        command("--out", out, *arguments),
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Sidecar(process, out)
        finally:
            process.kill()


def compile_driver(directory: Path) -> Path:
    """Build the fake library; the folder is for LD_LIBRARY_PATH."""
    library = directory / "libnvidia-ml.so.1"
    argv = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    argv += ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)]
    subprocess.run(argv, check=True, capture_output=True)
    return directory


def replace(script: Path, text: str) -> None:
    """Change the load; renamed into place, so that the driver never reads half of it."""
    beside = script.with_suffix(".new")
    beside.write_text(text)
    beside.replace(script)
