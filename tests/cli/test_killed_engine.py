"""A load engine that is killed in mid-run, as by a kernel that is out of memory."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from slo import rundir
from tests.cli.conftest import SLO
from tests.cli.processes import children_of, is_running, locust_of, until_written

LOAD = ["--rate", "10/s", "--duration", "60s", "--warmup", "0s", "--max-tokens", "8"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_whose_engine_is_killed_is_incomplete(sim: str, tmp_path: Path, workers: str) -> None:
    argv = [*SLO, "run", "--target", sim, *LOAD, "--workers", workers, "--sidecar", "off"]
    with subprocess.Popen(
        [*argv, "--out", "here"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        requests = tmp_path / "here" / rundir.REQUESTS
        until_written(process, requests)
        below = children_of(process.pid)
        os.kill(locust_of(process.pid), signal.SIGKILL)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 4, err
    assert out.splitlines() == ["here"]
    assert err.splitlines()[-1] == (
        "the run is not complete: the load engine was killed by signal 9"
    )
    assert not [pid for pid in below if is_running(pid)]
    assert not rundir.read_run(tmp_path / "here").finished
