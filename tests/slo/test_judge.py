"""The truth table: small runs of every kind, what is said of each, and its exit code."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slo.judge import judge
from slo.record import Failure
from slo.rundir import RunDirError, Stopped, WorkerInfo
from slo.slofile import parse_slo
from slo.verdict import Result, Row, Verdict
from slo.verdict_file import read_verdict, write_verdict
from tests.slo import spoil
from tests.slo.make_run import make_run, shuffled

SLO = """\
version: 1
service: tiny
load: {rate: 10/s, arrival: constant}
objectives:
  - {metric: ttft, percentile: 95, max: 420ms}
  - {metric: e2e, percentile: 95, max: 1.5s}
  - {metric: error_rate, max: 2%}
"""
N = 300
FAST = shuffled([0.1 + 0.0005 * i for i in range(N)])
ALL_REFUSED = dict.fromkeys(range(N), Failure.REFUSED)
WORKER = WorkerInfo(0, "local", 0, 0, records=N)

Make = Callable[[Path], Path]


def made(ttft: list[float] = FAST, *spoils: spoil.Spoil, **options: object) -> Make:
    def make(path: Path) -> Path:
        directory = make_run(path / "run", ttft, **options)
        for one in spoils:
            one(directory)
        return directory

    return make


def slo_with(*objectives: str, load: str = "", validity: str = "") -> str:
    listed = "".join(f"  - {{{objective}}}\n" for objective in objectives)
    extra = f"load: {{{load}}}\n" * bool(load) + f"validity: {{{validity}}}\n" * bool(validity)
    return f"version: 1\nservice: tiny\n{extra}objectives:\n{listed}"


def verdict_of(directory: Path, text: str = SLO) -> Verdict:
    return judge(directory, parse_slo(text))


def row_of(verdict: Verdict, name: str) -> Row:
    return next(row for row in verdict.rows if row.objective == name)


TRUTH: list[tuple[str, Make, Result, str]] = [
    ("fast", made(), Result.PASS, "PASS: all 3 objectives are met at 10/s."),
    ("slow", made([0.9] * N), Result.FAIL,
     "FAIL: 1 of 3 objectives is missed at 10/s: ttft p95 is 900 ms, asked is <= 420ms."),
    ("all errors", made(FAST, failures=ALL_REFUSED), Result.FAIL,
     "FAIL: all 3 objectives are missed at 10/s: ttft p95 is >60s, asked is <= 420ms."),
    ("some errors", made(FAST, failures=20), Result.FAIL, "error_rate is 6.67 %"),
    ("too short", made(FAST[:50]), Result.INCONCLUSIVE,
     "error_rate is 0 %, asked is <= 2%. Run about 99 more requests (9.90 s longer"),
    ("on the edge", made(shuffled([0.1] * 284 + [0.5] * 16)), Result.INCONCLUSIVE,
     "1 of 3 objectives is"),
    ("nothing sent", made([]), Result.INVALID, "judged: No request was due in the measured"),
    ("only warm-up", made([], warmup=20), Result.INVALID, "judged: No request was due"),
    ("stopped for a reason",
     made(FAST, spoil.in_run(finished=False, stopped=Stopped(30.0, "--max-requests"))),
     Result.PASS, "PASS"),
    ("cut short", made(FAST, spoil.in_run(finished=False)), Result.INVALID,
     "finished: run.json says neither finished nor why it was stopped"),
    ("late generator, slow by it", made([0.6] * N, late_s=0.3), Result.INVALID,
     "lateness: ttft p95: missed counted from due, but not from sent"),
    ("late generator, slow without it", made([0.9] * N, late_s=0.3), Result.FAIL, "FAIL"),
    ("late generator, met all the same", made([0.4] * N, late_s=0.3), Result.PASS, "PASS"),
    ("generator far behind", made([0.4 + i / N for i in range(N)],
                                  late_s=[i / N for i in range(N)]),
     Result.INVALID, "achieved rate: 300 of 300 arrivals were started, the last at 30.9 s"),
    ("lost worker", made(FAST, spoil.in_run(workers=(WORKER, WorkerInfo(1, "gpu-7", 0, 0)))),
     Result.INVALID, "workers: gpu-7 never reported an end"),
    ("dropped arrivals", made(FAST, failures={5: Failure.DROPPED}), Result.INVALID,
     "dropped: The generator could not start 1 arrivals"),
    ("requests cut off", made(FAST, spoil.cut("requests.jsonl")), Result.INVALID,
     "requests.jsonl:300: the last line is cut off"),
    ("requests missing", made(FAST, spoil.without("requests.jsonl")), Result.INVALID,
     "requests.jsonl: missing"),
    ("schedule cut off", made(FAST, spoil.cut("schedule.csv")), Result.INVALID,
     "schedule.csv:301: "),
    ("schedule missing", made(FAST, spoil.without("schedule.csv")), Result.INVALID,
     "schedule.csv: missing"),
    ("histograms cut off", made(FAST, spoil.cut("latency.hlog")), Result.INVALID,
     "the line is cut off"),
    ("histograms missing", made(FAST, spoil.without("latency.hlog")), Result.INVALID,
     "latency.hlog: missing"),
    ("target.json cut off", made(FAST, spoil.cut("target.json")), Result.INVALID,
     "target.json:"),
    ("another target in mid-run",
     made(FAST, spoil.target(lambda both: both["end"].update(process_start_wall_ns=9, pid=1))),
     Result.INVALID, "target: process_start_wall_ns was 1800000000000000000 at the start, 9"),
    ("another load", made(FAST, rate_per_s=20.0), Result.INVALID,
     "load: rate is 20/s, not 10/s"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "result", "says"), [case[1:] for case in TRUTH], ids=[case[0] for case in TRUTH]
)
def test_truth_table(tmp_path: Path, make: Make, result: Result, says: str) -> None:
    verdict = verdict_of(make(tmp_path))
    assert (verdict.result, verdict.sentence.startswith(result)) == (result, True)
    assert says in verdict.sentence
    codes = {Result.PASS: 0, Result.FAIL: 1, Result.INCONCLUSIVE: 3, Result.INVALID: 4}
    assert verdict.exit_code == codes[result]
    assert all(row.why for row in verdict.rows)
    assert all(row.next_step for row in verdict.rows if row.outcome is not Result.PASS)


ORDER = [Result.FAIL, Result.INCONCLUSIVE, Result.PASS]


def results_of(**runs: tuple[list[float], set[int]]) -> list[int]:
    """Places in ORDER of the verdicts on runs of these latencies and failures."""
    with TemporaryDirectory() as place:
        return [
            ORDER.index(
                verdict_of(
                    make_run(
                        Path(place) / name, ttft, failures=dict.fromkeys(failed, Failure.RESET)
                    ),
                    slo_with(
                        "metric: ttft, percentile: 90, max: 420ms", "metric: error_rate, max: 5%"
                    ),
                ).result
            )
            for name, (ttft, failed) in runs.items()
        ]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_miss_never_becomes_a_pass_by_more_failures_or_larger_latencies(
    data: st.DataObject,
) -> None:
    values = data.draw(st.lists(st.floats(0.05, 1.0), min_size=5, max_size=120))
    worse = [data.draw(st.sampled_from([v, v, v + 0.3, v * 3])) for v in values]
    failed = data.draw(st.sets(st.integers(0, len(values) - 1), max_size=8))
    more = data.draw(st.sets(st.integers(0, len(values) - 1), max_size=8))
    before, after = results_of(before=(values, failed), after=(worse, failed | more))
    assert (ORDER[before], ORDER[after]) != (Result.FAIL, Result.PASS)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.05, 0.6), min_size=5, max_size=150),
    st.floats(1, 8),
    st.sets(st.integers(0, 4), max_size=5),
)
def test_a_server_that_is_slower_for_all_never_gets_a_better_verdict(
    values: list[float], factor: float, failed: set[int]
) -> None:
    slower = [value * factor for value in values]
    before, after = results_of(before=(values, failed), after=(slower, failed))
    assert after <= before


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


def test_a_run_without_run_json_cannot_be_judged_at_all(tmp_path: Path) -> None:
    directory = made(FAST[:5], spoil.without("run.json"))(tmp_path)
    with pytest.raises(RunDirError, match=r"run\.json: missing"):
        verdict_of(directory)


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
        ("metric: achieved_rate, min: 10.1/s", Result.FAIL),
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
    assert "30 requests were in flight when the run was stopped" in " ".join(verdict.notes)


def test_a_verdict_reads_back_from_its_file(tmp_path: Path) -> None:
    directory = made(FAST, failures=30)(tmp_path)
    verdict = verdict_of(directory)
    write_verdict(directory, verdict)
    assert read_verdict(directory) == verdict
    document = json.loads((directory / "verdict.json").read_text())
    assert (document["schema"], document["result"]) == ("1.0", "FAIL")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cut off"),
        ('{"schema": "2.0"}', "schema '2.0' is unknown"),
        ('{"schema": "1.0"}', "result"),
    ],
)
def test_a_spoilt_verdict_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "verdict.json").write_text(text)
    with pytest.raises(RunDirError, match=r"verdict\.json") as caught:
        read_verdict(tmp_path)
    assert says in str(caught.value)
