"""`slo demo` with the engine that needs no torch; the real model is what `make demo` runs."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from slo import demo
from slo.drive import DriveError
from tests.cli.conftest import SLO, says_one_line, slo
from tests.cli.processes import children_of, is_running


def test_the_bundled_objectives_are_ones_that_the_demo_can_decide() -> None:
    slo_file = demo.objectives(None)
    assert slo_file.load.rate_per_s is not None
    assert slo_file.load.duration_s is not None
    judged = slo_file.load.rate_per_s * slo_file.load.duration_s
    assert judged >= 300
    for objective in slo_file.objectives:
        if objective.percentile is not None:
            allowed = 1 - objective.percentile / 100
        elif objective.metric == "error_rate":
            allowed = objective.limit
        else:
            continue
        # Not one over the limit must prove that it is met.
        assert (1 - allowed) ** judged < 1 - objective.confidence, objective.name


def test_another_duration_is_also_the_one_that_the_objectives_ask_for() -> None:
    slo_file = demo.objectives(12.0)
    assert slo_file.load.duration_s == 12.0
    assert demo.load("http://127.0.0.1:9", slo_file).duration_s == 12.0


def test_a_missing_extra_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(demo.NEEDS, "hf", {"fastapi": "serve", "no_such_torch": "hf"})
    with pytest.raises(DriveError, match=r"no_such_torch; pip install 'tailgate\[hf\]'"):
        demo.require_extras("hf")


def test_the_demo_ends_with_a_verdict_and_says_where_the_report_lies(tmp_path: Path) -> None:
    # 40 requests prove neither a P95 nor that fewer than 5 % are errors.
    done = slo("demo", "--engine", "sim", "--duration", "5s", cwd=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("INCONCLUSIVE")
    outcomes = dict.fromkeys(("ttft p95", "e2e p95", "error_rate"), "INCONCLUSIVE")
    for objective, outcome in {**outcomes, "achieved_rate": "PASS"}.items():
        line = next(line for line in done.stdout.splitlines() if line.startswith(objective))
        assert outcome in line
    last = done.stdout.splitlines()[-1]
    assert last.startswith("report: ")
    report = tmp_path / last.removeprefix("report: ")
    assert report.parent.parent == tmp_path / "runs"
    assert report.read_text().startswith("<!doctype html>")
    for name in ("verdict.json", "gpu.jsonl", "locust.log", "target.log"):
        assert (report.parent / name).exists(), name


def test_a_second_demo_does_not_write_into_the_first(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "target.log").write_text("of the first\n")
    done = slo("demo", "--engine", "sim", "--out", "here", cwd=tmp_path)
    says_one_line(done, 2, "slo demo: here/target.log: exists, of a demo that runs or ran there")
    assert (tmp_path / "here" / "target.log").read_text() == "of the first\n"


def test_an_unknown_engine_is_one_line(tmp_path: Path) -> None:
    done = slo("demo", "--engine", "vllm", cwd=tmp_path)
    says_one_line(done, 2, "slo demo: --engine: 'vllm'", "sim, hf")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_demo_stops_all_that_it_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    argv = [*SLO, "demo", "--engine", "sim", "--out", "here"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        requests = tmp_path / "here" / "requests.jsonl"
        deadline = time.monotonic() + 30
        while not (requests.exists() and requests.stat().st_size):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        below = children_of(process.pid)
        assert len(below) >= 3  # the target, the sidecar, Locust
        process.send_signal(number)
        _, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not [pid for pid in below if is_running(pid)]


def test_stopping_the_demo_while_the_target_starts_stops_the_target(tmp_path: Path) -> None:
    argv = [*SLO, "demo", "--engine", "sim", "--out", "here"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while not (below := children_of(process.pid)):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    assert not [pid for pid in below if is_running(pid)]
