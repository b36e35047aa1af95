"""A disk that fills during a run: a limit on the size of a file stands for it."""

import resource
import subprocess
from pathlib import Path

from slo.rundir import read_run
from tests.cli.conftest import SLO
from tests.serving import running_target

SMALL = 150_000  # bytes: the plan and the logs fit, the records of 1,000 requests do not
OPTIONS = ["--rate", "40/s", "--duration", "20s", "--max-tokens", "8", "--sidecar", "off"]


def test_a_run_whose_records_find_no_room_ends_and_is_incomplete(tmp_path: Path) -> None:
    with running_target("--engine", "sim", "--ttft-ms", "5", "--itl-ms", "1") as url:
        done = subprocess.run(
            [*SLO, "run", "--target", url, *OPTIONS, "--out", "run"],
            cwd=tmp_path,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL)),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "not complete: records could not be written: File too large" in done.stderr
    assert not read_run(tmp_path / "run").finished
