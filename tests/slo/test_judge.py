"""The truth table: small runs of every kind, what is said of each, and its exit code."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slo.record import Failure
from slo.rundir import RunDirError, Stopped, WorkerInfo
from slo.verdict import Result
from tests.slo import spoil
from tests.slo.judging import FAST, Make, N, made, slo_with, verdict_of
from tests.slo.make_run import make_run, shuffled

ALL_REFUSED = dict.fromkeys(range(N), Failure.REFUSED)
WORKER = WorkerInfo(0, "local", 0, 0, records=N)
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
     "lateness: ttft p95 <= 420ms: missed counted from due, but not from sent"),
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


def test_a_run_without_run_json_cannot_be_judged_at_all(tmp_path: Path) -> None:
    directory = made(FAST[:5], spoil.without("run.json"))(tmp_path)
    with pytest.raises(RunDirError, match=r"run\.json: missing"):
        verdict_of(directory)
