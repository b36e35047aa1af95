"""True changes of a simulated server are found, and none is found where there is none."""

from pathlib import Path

import pytest

from slo.compare import Ask, Comparison, Result, compare
from slo.compare_lines import Line
from tests.compare.simulated import abba, run


def line(found: Comparison, metric: str, scenario: str = "all") -> Line:
    return next(one for one in found.lines if (one.metric, one.scenario) == (metric, scenario))


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Comparison]:
    found = {}
    for change in (0.0, 0.05, 0.1):
        before, after = abba(tmp_path_factory.mktemp("ab"), change)
        found[change] = compare(before, after, Ask(gates=("e2e.p95", "e2e.gmean")))
    return found


@pytest.mark.parametrize("metric", ["e2e.gmean", "e2e.p50", "e2e.p95", "tpot.gmean"])
@pytest.mark.parametrize("change", [0.05, 0.1])
def test_a_true_change_is_found_though_the_machine_drifts(
    comparisons: dict[float, Comparison], metric: str, change: float
) -> None:
    found = line(comparisons[change], metric)
    assert found.outcome == "worse"
    assert found.change == pytest.approx(change, abs=0.03)


@pytest.mark.parametrize("metric", ["ttft.p95", "e2e.gmean", "e2e.p50", "e2e.p95", "tpot.gmean"])
def test_no_change_is_none(comparisons: dict[float, Comparison], metric: str) -> None:
    assert line(comparisons[0.0], metric).outcome == "~"


def test_the_verdict_follows_the_change(comparisons: dict[float, Comparison]) -> None:
    assert comparisons[0.0].result is Result.NOT_WORSE
    assert comparisons[0.1].result is Result.WORSE
    assert comparisons[0.1].exit_code == 1
    assert "e2e.p95 +1" in comparisons[0.1].sentence


def test_runs_side_by_side_are_paired(comparisons: dict[float, Comparison]) -> None:
    assert comparisons[0.0].method == "pairs"
    assert not any("side by side" in note for note in comparisons[0.0].notes)


def test_the_worst_stands_first(comparisons: dict[float, Comparison]) -> None:
    outcomes = [found.outcome for found in comparisons[0.1].lines]
    assert outcomes == sorted(outcomes, key=["worse", "changed", "~", "better", "-"].index)
    assert outcomes[0] == "worse"


def test_the_shift_of_the_distribution_lies_in_its_band(
    comparisons: dict[float, Comparison],
) -> None:
    shift = next(one for one in comparisons[0.1].shifts if one.metric == "e2e")
    inside = [
        low <= 0.1 <= high
        for low, high in zip(shift.low, shift.high, strict=True)
        if low is not None and high is not None
    ]
    assert all(inside)
    assert len(inside) > 30


def test_one_run_each_is_compared_within_the_assumed_drift(tmp_path: Path) -> None:
    before, after = run(tmp_path / "a", 1, 1.0, 1, 1), run(tmp_path / "b", 1, 1.03, 2, 2)
    found = compare([before], [after], Ask(gates=("e2e.p95",)))
    assert found.result is Result.CANNOT_SAY
    assert found.exit_code == 3
    assert found.method == "within"
    assert line(found, "e2e.p95").outcome == "~"
    assert any("drift of 3 % between runs is assumed" in note for note in found.notes)
    assert "times as much load would tell" in found.sentence


def test_a_large_change_is_seen_in_one_run_each(tmp_path: Path) -> None:
    before, after = run(tmp_path / "a", 1, 1.0, 1, 1), run(tmp_path / "b", 1, 2.0, 2, 2)
    assert compare([before], [after], Ask(gates=("e2e.p95",))).result is Result.WORSE


def test_runs_that_were_not_interleaved_are_told(tmp_path: Path) -> None:
    before = [run(tmp_path / f"a{i}", i, 1.0, i, i) for i in range(4)]
    after = [run(tmp_path / f"b{i}", i, 1.0, 9 + i, 9 + i) for i in range(4)]
    found = compare(before, after, Ask(gates=("e2e.p95",)))
    assert any("not side by side in time" in note for note in found.notes)
