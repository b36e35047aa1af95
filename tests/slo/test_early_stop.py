"""A running load is ended early only when its miss is certain."""

import shutil
from pathlib import Path

import pytest

from slo import early_stop
from slo.early_stop import Watch, until
from slo.judge import judge
from slo.measurements import Measurements, collect
from slo.planning import never_met
from slo.record import Failure, Record
from slo.rundir import Run
from slo.slofile import parse_slo
from slo.verdict import Result
from tests.slo import spoil
from tests.slo.make_run import make_run, shuffled

N = 600


def slo(*objectives: str) -> str:
    listed = "".join(f"  - {{{objective}}}\n" for objective in objectives)
    return f"version: 1\nservice: s\nload: {{rate: 10/s, duration: 60s}}\nobjectives:\n{listed}"


def begun(tmp_path: Path, ttft: list[float], done: int, **options: object) -> Path:
    """A run of N planned requests, of which the first `done` ended."""
    directory = make_run(tmp_path / "run", ttft, **options)
    spoil.lines("requests.jsonl", lambda rows: rows[:done])(directory)
    return directory


@pytest.mark.parametrize(
    ("objective", "done", "stops"),
    [
        ("metric: ttft, percentile: 95, max: 420ms", 30, False),  # may still be 5 %
        ("metric: ttft, percentile: 95, max: 420ms", 120, True),
        ("metric: ttft, percentile: 50, max: 420ms", 120, False),
        ("metric: goodput, min: 95%, meets: {e2e: 1s}", 120, True),
        ("metric: ttft, percentile: 95, max: 420ms, severity: warn", 120, False),
        ("metric: itl, percentile: 95, max: 1ms", 120, False),
        ("metric: output_tokens_per_s, min: 1000", 120, False),
        ("metric: error_rate, max: 1%", 120, False),
    ],
)
def test_a_slow_run_ends_once_no_rest_of_it_can_help(
    tmp_path: Path, objective: str, done: int, stops: bool
) -> None:
    slow = shuffled([0.9 + 0.001 * (i % 50) for i in range(N)])
    why = Watch(begun(tmp_path, slow, done), parse_slo(slo(objective))).why_stop()
    assert (why is not None) == stops
    if why:
        assert f"{done} of 600 planned requests miss" in why


def test_failures_end_a_run_too(tmp_path: Path) -> None:
    failures = dict.fromkeys(range(0, N, 3), Failure.REFUSED)
    directory = begun(tmp_path, [0.1] * N, 200, failures=failures)
    why = Watch(directory, parse_slo(slo("metric: error_rate, max: 1%"))).why_stop()
    assert why is not None
    assert why.startswith("error_rate is missed for certain: 67 of 600")


def test_what_would_end_a_run_is_a_miss_at_its_end_even_if_all_the_rest_is_fast(
    tmp_path: Path,
) -> None:
    """The promise of "certain": the same run, its rest as fast as can be, still fails."""
    text = parse_slo(slo("metric: ttft, percentile: 95, max: 420ms"))
    slow = shuffled([0.9 + 0.001 * (i % 50) for i in range(N)])
    for done in range(20, 200, 10):
        directory = begun(tmp_path, slow, done)
        stops = Watch(directory, text).why_stop() is not None
        shutil.rmtree(directory)
        if stops:
            break
    best = make_run(tmp_path / "best", slow[:done] + [0.01] * (N - done))
    row = judge(best, text).rows[0]
    assert row.measured is not None
    assert row.measured > 0.42
    assert row.outcome is not Result.PASS


def test_it_reads_on_and_looks_every_few_seconds(tmp_path: Path) -> None:
    slow = [0.9 + 0.001 * (i % 50) for i in range(N)]
    directory = make_run(tmp_path / "run", shuffled(slow))
    whole = (directory / "requests.jsonl").read_text()
    (directory / "requests.jsonl").write_text("")
    now = [0.0]
    text = parse_slo(slo("metric: ttft, percentile: 95, max: 420ms"))
    why = until(directory, text, 50.0, lambda: now[0])
    assert why() is None
    (directory / "requests.jsonl").write_text(whole)
    assert why() is None  # too soon to look again
    now[0] = 6.0
    assert "missed for certain" in str(why())
    now[0] = 51.0
    assert why() == "the budget of 50 s is spent"


def test_all_looks_of_a_long_run_cost_as_much_as_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_run(tmp_path / "run", [0.1] * 2000)
    lines = (directory / "requests.jsonl").read_bytes().splitlines(keepends=True)
    gone_through: list[int] = []

    def counted(records: list[Record], run: Run) -> Measurements:
        gone_through.append(len(records))
        return collect(records, run)

    monkeypatch.setattr(early_stop, "collect", counted)
    watch = Watch(directory, parse_slo(slo("metric: ttft, percentile: 95, max: 420ms")))
    with (directory / "requests.jsonl").open("wb", buffering=0) as file:
        for start in range(0, 2000, 5):  # 400 looks, of a run that goes on
            file.write(b"".join(lines[start : start + 5]))
            assert watch.why_stop() is None
    assert gone_through[-1] > 2000 / 1.1
    assert sum(gone_through) < 12 * 2000  # 401,000 where each look goes through all


def test_before_the_run_began_nothing_ends_it(tmp_path: Path) -> None:
    watch = Watch(tmp_path, parse_slo(slo("metric: error_rate, max: 1%")))
    assert watch.why_stop() is None


def test_an_objective_that_the_planned_run_cannot_prove_is_named() -> None:
    text = slo(
        "metric: ttft, percentile: 95, max: 1s",
        "metric: ttft, percentile: 99.9, max: 1s",
        "metric: error_rate, max: 0.1%",
        "metric: error_rate, max: 0%",
        "metric: error_rate, max: 1%, min_samples: 1000",
        "metric: goodput, min: 99.9%, meets: {e2e: 1s}",
        "metric: output_tokens_per_s, min: 10",
    )
    found = parse_slo(text)
    named = list(never_met(found, found.load))
    assert [line.split(" (")[0].split(":")[0] for line in named] == [
        "ttft p99.9", "error_rate", "error_rate", "error_rate", "goodput",
    ]  # fmt: skip
    assert "it needs 2,995 requests, planned are about 600; run for 300s or longer" in named[0]
    assert "no number of requests proves it" in named[2]


def test_a_scenario_has_its_share_of_the_planned_requests() -> None:
    text = slo("metric: ttft, percentile: 95, max: 1s, scenario: code").replace(
        "60s}", "30s, mix: {math: 9, code: 1}}"
    )
    found = parse_slo(text)
    assert "it needs 59 requests, planned are about 30" in next(never_met(found, found.load))
