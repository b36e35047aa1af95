"""Two runs that want one directory: the first has it for as long as it lives."""

import errno
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slo import run_lock, rundir
from tests.cli.conftest import EASY, SLO, says_one_line, slo
from tests.cli.processes import children_of, is_running, until_written

LOAD = ("--rate", "10/s", "--warmup", "0s", "--max-tokens", "8", "--sidecar", "off")
SHORT = (*LOAD, "--duration", "2s", "--arrival", "constant", "--out", "here")
LONG = (*LOAD, "--duration", "60s", "--out", "here")


@contextmanager
def writing(sim: str, place: Path) -> Iterator["subprocess.Popen[str]"]:
    """A long run that has begun to write, and is killed in the end."""
    argv = [*SLO, "run", "--target", sim, *LONG]
    requests = place / "here" / rundir.REQUESTS
    with subprocess.Popen(argv, cwd=place, stderr=subprocess.PIPE, text=True) as process:
        until_written(process, requests)
        below = children_of(process.pid)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            deadline = time.monotonic() + 60
            while any(map(is_running, below)):  # they end with it, after a short drain
                assert time.monotonic() < deadline
                time.sleep(0.1)


def slo_yaml(place: Path) -> Path:
    path = place / "slo.yaml"
    path.write_text(EASY)
    return path


def test_a_second_run_is_told_who_writes_there_even_with_force(sim: str, tmp_path: Path) -> None:
    with writing(sim, tmp_path) as first:
        for more in ((), ("--force",)):
            done = slo("run", "--target", sim, *SHORT, *more, cwd=tmp_path)
            by = f"here: a run is being written there by process {first.pid}"
            says_one_line(done, 2, f"slo run: {by}; name another --out")
        done = slo("check", "here", "--slo", slo_yaml(tmp_path), cwd=tmp_path)
        says_one_line(done, 2, f"here: process {first.pid} still writes this run")
        assert first.poll() is None
        assert rundir.read_run(tmp_path / "here").duration_s == 60


def test_a_killed_run_leaves_no_claim(sim: str, tmp_path: Path) -> None:
    with writing(sim, tmp_path):
        pass
    done = slo("run", "--target", sim, *SHORT, "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert rundir.read_run(tmp_path / "here").finished
    assert not list((tmp_path / "here").glob(".*"))


def test_of_two_that_start_at_one_moment_one_runs(sim: str, tmp_path: Path) -> None:
    argv = [*SLO, "run", "--target", sim, *SHORT]
    both = [
        subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = {process.returncode: err for process in both for err in [process.communicate()[1]]}
    assert sorted(said) == [0, 2], said
    assert "here: a run is being written there" in said[2]
    assert rundir.read_run(tmp_path / "here").counts.completed == 20


def test_a_file_system_without_locks_is_no_reason_not_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    run_lock.release(tmp_path / "here", run_lock.take(tmp_path / "here"))
    assert not (tmp_path / "here").exists()
