"""The GPU sidecar beside a run: on this machine, on another, or not at all."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from slo import rundir, sidecar, target_probe
from tests.cli.processes import children_of, is_running


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / rundir.GPU).read_text().splitlines()]


def test_off_leaves_nothing(tmp_path: Path) -> None:
    with sidecar.beside("off", tmp_path, print):
        pass
    assert not list(tmp_path.iterdir())


def test_a_local_sidecar_says_what_it_found_and_leaves_no_empty_log(tmp_path: Path) -> None:
    said: list[str] = []
    with sidecar.beside("local", tmp_path, said.append):
        deadline = time.monotonic() + 20
        while not (tmp_path / rundir.GPU).exists() or not lines(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert lines(tmp_path)[0]["type"] == "header"
    assert said == []
    assert not (tmp_path / sidecar.LOG).exists()


def test_a_sidecar_that_cannot_write_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / rundir.GPU).mkdir()
    before = children_of(os.getpid())
    with sidecar.beside("local", tmp_path, said.append):
        deadline = time.monotonic() + 20
        while any(map(is_running, children_of(os.getpid()) - before)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    [told] = said
    assert told.startswith("the GPU was not measured: the sidecar ended with ")


def test_a_remote_sidecar_that_does_not_answer_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        said: list[str] = []
        with sidecar.beside(url, tmp_path, said.append):
            pass
    [told] = said
    assert told.startswith(f"the GPU is not measured: {url}/health: ")


def test_a_remote_sidecar_is_copied_with_its_clock_before_and_after(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "target.nvml_sidecar", "--out", str(tmp_path / "there.jsonl")]
    with subprocess.Popen([*argv, "--port", str(port)]) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            target_probe.wait_until_ready(url, timeout_s=20, key=None, say=lambda text: None)
            with sidecar.beside(url, tmp_path, print):
                deadline = time.monotonic() + 20
                while not (tmp_path / rundir.GPU).exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        finally:
            process.terminate()
    kinds = [line["type"] for line in lines(tmp_path)]
    assert kinds[:2] == ["header", "clock"]
    assert kinds[-1] == "clock"
    assert kinds.count("clock") == 2
