"""`slo run` as a person runs it: the real command, real Locust, a real server."""

import os
import pty
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slo import rundir
from tests.cli.conftest import QUICK, SHORT, SLO, slo
from tests.cli.processes import children_of, is_running, until_written
from tests.serving import running_target


def test_a_run_leaves_its_directory_with_the_model_the_target_has(finished: Path) -> None:
    run = rundir.read_run(finished)
    assert run.finished
    assert (run.counts.scheduled, run.counts.completed) == (40, 40)
    assert run.model == "sim"
    assert (run.rate_per_s, run.duration_s, run.warmup_s, run.seed) == (10, 3, 1, 7)
    assert (finished / "locust.log").exists()
    assert len(list(rundir.read_records(finished))) == 40


def test_with_slo_the_load_comes_from_the_file_and_the_code_from_the_verdict(
    finished: Path, sim: str, easy: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "again"
    shutil.copytree(finished, directory)
    options = ("--slo", easy, "--workers", "2", "--out", directory, "--force")
    done = slo("run", "--target", sim, *options, *SHORT, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert done.stdout.splitlines()[-1] == str(directory)
    run = rundir.read_run(directory)
    assert run.id != rundir.read_run(finished).id
    assert (run.rate_per_s, run.duration_s, run.arrival) == (10, 3, "constant")
    assert len(run.workers) == 2
    assert run.counts.completed == 40
    assert (directory / "verdict.json").exists()


def test_on_a_terminal_the_run_shows_a_live_panel(sim: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    argv = [*SLO, "run", "--target", sim, *QUICK[:2], "--duration", "2s", "--warmup", "0s", *SHORT]
    with open(theirs, "wb") as terminal:
        done = subprocess.run(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal)
        terminal.flush()
        seen = os.read(ours, 1_000_000).decode(errors="replace")
    os.close(ours)
    assert done.returncode == 0
    for part in ("offered", "in flight", "TTFT P50 / P95", "late P99"):
        assert part in seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_a_run_keeps_what_was_measured_and_leaves_no_process(
    sim: str, tmp_path: Path, number: signal.Signals
) -> None:
    argv = [*SLO, "run", "--target", sim, "--rate", "10/s", "--duration", "60s", "--warmup", "0s"]
    argv += ["--workers", "2", "--max-tokens", "8", "--out", "here"]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        requests = tmp_path / "here" / "requests.jsonl"
        until_written(process, requests)
        below = children_of(process.pid)
        assert len(below) >= 4  # Locust, its two workers, the sidecar
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert out.splitlines() == ["here"]
    assert "Traceback" not in err
    assert not [pid for pid in below if is_running(pid)]
    run = rundir.read_run(tmp_path / "here")
    assert not run.finished
    assert run.stopped is not None
    assert run.counts.completed > 0


def test_stopping_before_the_load_has_begun_leaves_nothing(tmp_path: Path) -> None:
    with running_target("--engine", "sim", "--ttft-ms", "60000") as url:
        argv = [*SLO, "run", "--target", url, *QUICK, "--sidecar", "off", "--out", "here"]
        with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 30
            while not (below := children_of(process.pid)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "slo run: stopped"
    assert not [pid for pid in below if is_running(pid)]
    assert not (tmp_path / "here").exists()
