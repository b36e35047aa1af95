"""Each line of a verdict: which requests it is of, what it says, what voids it."""

import re
from pathlib import Path

import pytest

from slo.record import Failure
from slo.run import Imported
from slo.rundir import Stopped
from slo.verdict import Result
from tests.slo import spoil
from tests.slo.judging import FAST, N, made, row_of, slo_with, verdict_of
from tests.slo.make_run import shuffled


def test_a_line_says_value_interval_n_limit_and_why(tmp_path: Path) -> None:
    row = row_of(verdict_of(made()(tmp_path)), "ttft p95")
    # Rank ceil(0.95 * 300) = 285; were all independent, the ends were ranks 279 and 292.
    ordered = sorted(FAST)
    assert row.measured == pytest.approx(ordered[284])
    assert ordered[250] < row.low <= ordered[278] + 1e-9
    assert row.high >= ordered[291] - 1e-9
    assert (row.n, row.limit, row.limit_value, row.unit) == (300, "<= 420ms", 0.42, "s")
    assert row.why.startswith(
        "At most 5 % of requests may take longer than 420ms; 0 of 300 did (0 %)"
    )
    assert row.why.endswith("met with 95 % confidence.")


def test_a_percentile_among_failures_is_censored_at_the_timeout(tmp_path: Path) -> None:
    row = row_of(verdict_of(made(FAST, failures=30)(tmp_path)), "ttft p95")
    assert (row.measured, row.censored, row.outcome) == (None, ">60s", Result.FAIL)
    assert row.next_step == "Look at the failures first: 30 requests failed."


def test_a_warning_never_turns_the_result(tmp_path: Path) -> None:
    text = slo_with(
        "metric: ttft, percentile: 95, max: 10ms, severity: warn", "metric: error_rate, max: 2%"
    )
    verdict = verdict_of(made()(tmp_path), text)
    assert (verdict.result, row_of(verdict, "ttft p95").outcome) == (Result.PASS, Result.FAIL)
    assert verdict.notes[0].startswith("Warning only: ttft p95 (<= 10ms) is FAIL.")


def test_a_warning_that_is_void_leaves_the_gate_of_the_same_metric_alone(tmp_path: Path) -> None:
    """Each request is 100 ms late, which turns the tight limit only."""
    text = slo_with(
        "metric: ttft, percentile: 95, max: 1s",
        "metric: ttft, percentile: 95, max: 150ms, severity: warn",
    )
    verdict = verdict_of(made(shuffled([0.2] * N), late_s=0.1)(tmp_path), text)
    assert [row.outcome for row in verdict.rows] == [Result.PASS, Result.INVALID]
    assert verdict.result is Result.PASS


def test_the_sentence_names_what_voids_a_gating_line(tmp_path: Path) -> None:
    text = slo_with("metric: ttft, percentile: 95, max: 40s")
    imported = Imported("a tool", ("accuracy", "session"), due_known=True, why="it says little")
    verdict = verdict_of(made(FAST, spoil.in_run(imported=imported))(tmp_path), text)
    assert verdict.sentence.startswith("INVALID: the run cannot be judged: length: ")


def test_more_requests_of_a_rare_scenario_take_longer(tmp_path: Path) -> None:
    mixed = ("math",) * 9 + ("code",)
    text = slo_with("metric: ttft, percentile: 95, max: 420ms, scenario: code")
    row = verdict_of(
        made(FAST, scenarios=mixed, mix={"math": 0.9, "code": 0.1})(tmp_path), text
    ).rows[0]
    assert row.outcome is Result.INCONCLUSIVE
    found = re.match(r"Run about (\d+) more requests \(([\d.]+) s longer", row.next_step)
    assert found is not None
    assert float(found[2]) == pytest.approx(float(found[1]), rel=0.05)  # one of code a second


def test_several_objectives_must_miss_together(tmp_path: Path) -> None:
    """22 of 300 over is a miss alone (p = 0.047), and may be chance beside nine others."""
    run = made(shuffled([0.1] * 278 + [0.5] * 22))(tmp_path)
    alone = "metric: ttft, percentile: 95, max: 420ms"
    assert verdict_of(run, slo_with(alone)).result is Result.FAIL
    beside = verdict_of(run, slo_with(alone, *["metric: e2e, percentile: 95, max: 5s"] * 9))
    assert beside.result is Result.INCONCLUSIVE
    row = row_of(beside, "ttft p95")
    assert "beside the other objectives (Holm) it may be chance" in row.why
    assert row.next_step.startswith("Run about ")


def test_each_scenario_is_judged_by_its_own_requests(tmp_path: Path) -> None:
    run = made([0.1, 0.9] * 150, scenarios=("math", "code"))(tmp_path)
    text = slo_with(
        "metric: ttft, percentile: 95, max: 420ms, scenario: math",
        "metric: ttft, percentile: 95, max: 420ms, scenario: code",
    )
    verdict = verdict_of(run, text)
    assert [(r.scenario, r.outcome, r.n) for r in verdict.rows] == [
        ("math", Result.PASS, 150), ("code", Result.FAIL, 150),
    ]  # fmt: skip
    assert "ttft p95 of code is 900 ms" in verdict.sentence


def test_a_scenario_without_requests_is_no_pass(tmp_path: Path) -> None:
    text = slo_with("metric: error_rate, max: 2%", "metric: error_rate, max: 2%, scenario: code")
    verdict = verdict_of(made()(tmp_path), text)
    assert verdict.result is Result.INVALID
    assert [row.outcome for row in verdict.rows] == [Result.PASS, Result.INVALID]
    assert "No request of scenario code was judged; the run has math." in verdict.sentence


def test_a_limit_that_the_timeout_hides_is_refused(tmp_path: Path) -> None:
    text = slo_with("metric: e2e, percentile: 95, max: 20s", "metric: error_rate, max: 2%")
    verdict = verdict_of(made(FAST, timeout_s=20.0)(tmp_path), text)
    assert [row.outcome for row in verdict.rows] == [Result.INVALID, Result.PASS]
    assert "the timeout ends a request before that" in verdict.sentence


def test_token_counts_in_doubt_void_per_token_metrics_only(tmp_path: Path) -> None:
    guess = spoil.lines(
        "requests.jsonl", lambda rows: [row.replace('"usage"', '"chunks"') for row in rows]
    )
    run = made(FAST, guess)(tmp_path)
    text = slo_with("metric: ttft, percentile: 95, max: 420ms")
    assert verdict_of(run, text).result is Result.PASS
    text = slo_with("metric: tpot, percentile: 95, max: 1s", "metric: error_rate, max: 2%")
    verdict = verdict_of(run, text)
    assert [row.outcome for row in verdict.rows] == [Result.INVALID, Result.PASS]
    assert verdict.result is Result.INVALID


@pytest.mark.parametrize(
    ("objective", "result"),
    [
        ("metric: itl, percentile: 95, max: 110ms", Result.PASS),  # gaps of 100 ms
        ("metric: itl, percentile: 95, max: 90ms", Result.FAIL),
        ("metric: tpot, percentile: 50, max: 60ms", Result.PASS),  # 0.4 s for 8 tokens
        ("metric: tpot, percentile: 50, max: 40ms", Result.FAIL),
        ("metric: output_tokens_per_s, min: 90", Result.PASS),  # 10/s of 10 tokens
        ("metric: output_tokens_per_s, min: 110", Result.FAIL),
        ("metric: achieved_rate, min: 99%", Result.PASS),
        ("metric: achieved_rate, min: 9.9/s", Result.PASS),
        ("metric: achieved_rate, min: 10.1/s", Result.INCONCLUSIVE),  # it was not offered
        ("metric: error_rate, max: 0.5%", Result.INCONCLUSIVE),  # 300 cannot say so
        ("metric: ttft, percentile: 99.9, max: 1s", Result.INCONCLUSIVE),
        ("metric: ttft, percentile: 95, max: 420ms, min_samples: 301", Result.INCONCLUSIVE),
        ("metric: ttfat, percentile: 95, max: 420ms", Result.INCONCLUSIVE),  # no reasoning
    ],
)
def test_every_metric_can_turn_the_verdict(tmp_path: Path, objective: str, result: Result) -> None:
    assert verdict_of(made()(tmp_path), slo_with(objective)).result is result


def test_a_full_in_flight_bound_is_the_servers_failure(tmp_path: Path) -> None:
    held = dict.fromkeys(range(0, N, 10), Failure.IN_FLIGHT_CAP)
    run = made(FAST, failures=held)(tmp_path)
    verdict = verdict_of(run, slo_with("metric: achieved_rate, min: 95%"))
    assert verdict.result is Result.FAIL
    assert row_of(verdict, "achieved_rate").measured == 0.9
    assert verdict_of(run).result is Result.FAIL  # 10 % of requests have no latency


def test_what_was_cancelled_by_our_own_stop_is_neither_met_nor_missed(tmp_path: Path) -> None:
    """30 of 300 in flight at the stop, for 50 ms: no PASS by leaving them out, no FAIL either."""
    cancelled = dict.fromkeys(range(270, 300), Failure.CANCELLED)
    stop = spoil.in_run(finished=False, stopped=Stopped(30.0, "interrupted"))
    verdict = verdict_of(made(FAST, stop, failures=cancelled)(tmp_path))
    assert {row.outcome for row in verdict.rows} == {Result.INCONCLUSIVE}
    gaps = slo_with("metric: itl, percentile: 95, max: 1s")
    assert verdict_of(tmp_path / "run", gaps).result is Result.INCONCLUSIVE
    assert "30 requests were in flight when the run was stopped" in " ".join(verdict.notes)
