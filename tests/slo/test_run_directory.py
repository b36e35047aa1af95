"""Making a run directory where one is already."""

from pathlib import Path

import pytest

from slo.rundir import RUN, RunDirError, create
from tests.slo.make_run import make_run


def test_force_removes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", ttft_s=[0.1] * 20)
    (run / "notes.txt").write_text("mine")
    with pytest.raises(RunDirError, match="holds a run already"):
        create(run)
    create(run, force=True)
    assert not (run / RUN).exists()
    assert [left.name for left in run.iterdir()] == ["notes.txt"]
