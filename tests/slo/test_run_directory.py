"""Making a run directory where one is already, and writing what goes into it or beside it."""

import os
from pathlib import Path

import pytest

from slo.rundir import RUN, RunDirError, create, write_atomic
from tests.slo.make_run import make_run


def test_force_removes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", ttft_s=[0.1] * 20)
    (run / "notes.txt").write_text("mine")
    with pytest.raises(RunDirError, match="holds a run already"):
        create(run)
    create(run, force=True)
    assert not (run / RUN).exists()
    assert [left.name for left in run.iterdir()] == ["notes.txt"]


def test_a_name_that_no_file_can_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="cannot make the run directory: File name too long"):
        create(tmp_path / ("n" * 300))


def test_a_pipe_or_a_device_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
