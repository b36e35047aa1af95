"""Every validity check can void a run: a good one holds them all, each spoilt one fails one."""

from dataclasses import replace
from pathlib import Path

import pytest

from slo import load_checks, target_checks, validity
from slo.evidence import read_evidence
from slo.judge import judge
from slo.objectives import Load
from slo.record import Arrival, Failure
from slo.rundir import (
    Stopped,
    WorkerInfo,
    read_run,
    read_schedule,
    write_run,
    write_schedule,
)
from slo.slofile import parse_slo
from slo.verdict import Check, Result
from tests.slo import spoil
from tests.slo.make_logs import write_server
from tests.slo.make_run import make_run

SLO = parse_slo("""\
version: 1
service: tiny
load: {rate: 10/s, arrival: constant, duration: 40s, warmup: 2s, mix: {math: 1},
       input_class: 128, max_tokens: 64}
objectives:
  - {metric: ttft, percentile: 95, max: 420ms}
""")
N = 400


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = make_run(tmp_path / "run", [0.1] * N, warmup=20)
    write_server(directory, output_tokens=lambda second: 100.0 * second)
    return directory


def voided(directory: Path) -> dict[str, Check]:
    verdict = judge(directory, SLO)
    found = {check.check: check for check in verdict.validity if check.outcome == "void"}
    assert (verdict.result is Result.INVALID) == bool(found)
    return found


def test_a_good_run_holds_every_check(run: Path) -> None:
    verdict = judge(run, SLO)
    assert verdict.result is Result.PASS
    # There is no GPU in it whose roofline could be broken.
    assert {c.check for c in verdict.validity if c.outcome != "ok"} == {"roofline"}
    assert [check.check for check in verdict.validity] == [
        "files", "origin", "finished", "counts", "schedule", "workers", "arrivals", "histograms",
        "dropped", "judged", "length", "load", "achieved rate", "lateness", "warm-up", "clocks",
        "timeout", "clock", "token counts", "prefix cache", "target", "roofline",
    ]  # fmt: skip
    assert all(check.measured and check.limit and check.why for check in verdict.validity)


WORKER = WorkerInfo(0, "local", 0, 0, records=N + 20)


def _late(directory: Path) -> None:
    """Send all 0.4 s after due, and answer 0.4 s later than before."""
    make_run(directory, [0.5] * N, warmup=20, late_s=0.4)


# The first fifth three times as slow as the rest, and three times as fast.
WARMING = [0.8] * 80 + [0.0] * 320
RISING = [0.0] * 80 + [0.3] * 320


def _cached(row: str) -> str:
    return row.replace('"cached_tokens":0', '"cached_tokens":112')


def _step(directory: Path) -> None:
    """Set the wall clock in mid-run, on one of several hosts."""
    write_server(directory, step_s=0.2)
    both = (replace(WORKER, records=210), WorkerInfo(1, "b", 0, 0, records=210))
    spoil.in_run(workers=both)(directory)
    spoil.lines(
        "requests.jsonl",
        lambda rows: [r.replace('"worker":0', f'"worker":{i % 2}') for i, r in enumerate(rows)],
    )(directory)


@pytest.mark.parametrize(
    ("one", "check", "says"),
    [
        (lambda d: make_run(d, WARMING, warmup=20), "warm-up", "3.00 x of the rest"),
        (lambda d: make_run(d, RISING, warmup=20), "warm-up", "latency still rose"),
        (_step, "clock", "The wall clock was set by 200 ms in mid-run"),
        (
            spoil.lines("requests.jsonl", lambda rows: [_cached(row) for row in rows]),
            "prefix cache",
            "400 prompts came for the most part out of the prefix cache",
        ),
        (
            lambda d: write_server(d, output_tokens=lambda s: 9.0 * (s % 30)),
            "target",
            "output_tokens fell from 261 to 0 at 30.5 s: the server was started again",
        ),
        (
            spoil.target(lambda both: both.update(models_end=["tiny", "other"])),
            "target",
            "the list of models was ['tiny'] at the start",
        ),
        (spoil.cut("requests.jsonl"), "files", "requests.jsonl:420"),
        (spoil.in_run(finished=False), "finished", "neither finished nor why"),
        (spoil.counts(completed=7), "counts", "7 completed + 0 failed + 0 dropped"),
        (spoil.counts(completed=419, failed=1), "counts", "420 completed in requests.jsonl, 419"),
        (spoil.lines("schedule.csv", lambda rows: rows[:-1]), "schedule", "419 rows"),
        (
            spoil.lines("schedule.csv", lambda rows: [*rows[:-1], rows[-2]]),
            "schedule",
            "A seq stands twice in schedule.csv",
        ),
        (
            spoil.lines("requests.jsonl", lambda rows: [*rows[:-1], rows[-2]]),
            "schedule",
            "A seq stands twice in requests.jsonl",
        ),
        (
            spoil.lines("schedule.csv", lambda r: [*r[:-1], r[-1].replace("419,41.9", "519,41.9")]),
            "schedule",
            "requests.jsonl has seq 419, schedule.csv has not",
        ),
        (
            spoil.lines("schedule.csv", lambda r: [*r[:-1], r[-1].replace("41.9,", "41.95,")]),
            "schedule",
            "seq 419 was not due when",
        ),
        (spoil.in_run(workers=(WORKER, WorkerInfo(1, "b", 0, 0))), "workers", "b never reported"),
        (spoil.in_run(workers=(replace(WORKER, records=9),)), "workers", "reported 9 records"),
        (spoil.in_run(workers=(replace(WORKER, index=1),)), "workers", "Worker 0 reported 0"),
        (spoil.in_run(arrival="poisson"), "arrivals", "more evenly than Poisson"),
        (
            spoil.lines("latency.hlog", lambda rows: [r for r in rows if ".ttft,9" not in r]),
            "histograms",
            "math.ttft has 410 values in latency.hlog, 420",
        ),
        (lambda d: make_run(d, [0.1] * N, warmup=20, failures={3: Failure.DROPPED}), "dropped", ""),
        (lambda d: make_run(d, [], warmup=420), "judged", "No request was due"),
        (spoil.in_run(rate_per_s=9.98), "load", "rate is 9.98/s, not 10/s"),
        (spoil.in_run(duration_s=39.9), "load", "duration is 39.9 s, not 40.0 s"),
        (spoil.in_run(mix={"math": 0.9, "code": 0.1}), "load", "mix is math=0.9, code=0.1"),
        (_late, "lateness", "ttft p95 <= 420ms: missed counted from due, but not from sent"),
        (spoil.in_run(workers=(replace(WORKER, clock_bound_ns=10**8),)), "clocks", "100 ms only"),
        (spoil.in_run(timeout_s=0.42), "timeout", "ttft p95: a limit of 420 ms is never seen"),
        (
            spoil.target(lambda both: both["end"].update(model="other")),
            "target",
            "model was 'tiny'",
        ),
    ],
)
def test_each_check_can_void_a_run(run: Path, one: spoil.Spoil, check: str, says: str) -> None:
    one(run)
    found = voided(run)
    assert check in found
    assert says in found[check].why


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Load(arrival="poisson"), "arrival is constant, not poisson"),
        (Load(warmup_s=5.0), "warmup is 2.00 s, not 5.00 s or more"),
        (Load(input_class="512"), "input_class is 128, not 512"),
        (Load(input_class="200-4000"), "input_class is 128, not 200-4000"),
        (Load(input_class="mixed"), "input_class is 128, not mixed"),
        (Load(max_tokens=32), "max_tokens is 64, not 32"),
        (Load(mix={"math": 0.5, "code": 0.5}), "mix is math=1, not math=0.5, code=0.5"),
    ],
)
def test_another_load_is_named(run: Path, asked: Load, says: str) -> None:
    evidence = read_evidence(run)
    check = load_checks.load(evidence.run, evidence.measured, replace(SLO, load=asked))
    assert (check.outcome, check.voids) == ("void", ("*",))
    assert says in check.why


@pytest.mark.parametrize("asked", ["128", "100-200", "mixed", "128,2000", "100-200,1000-2000"])
def test_lengths_in_a_range_or_one_of_several_are_those_asked_for(run: Path, asked: str) -> None:
    if asked not in ("128", "100-200"):
        spoil.lines("requests.jsonl", lambda rows: [*rows[:100], *map(_longer, rows[100:])])(run)
    evidence = read_evidence(run)
    load = replace(SLO, load=Load(input_class=asked))
    found = load_checks.load(evidence.run, evidence.measured, load)
    assert (found.outcome == "ok") == (asked != "mixed")


def test_more_tokens_than_were_asked_for_are_no_count(run: Path) -> None:
    evidence = read_evidence(run)
    assert validity.tokens(evidence.measured).outcome == "ok"
    evidence.measured.columns.numbers["output_tokens"][20:100] = 65  # of 64 at most
    check = validity.tokens(evidence.measured)
    assert (check.outcome, check.voids) == ("void", ("tpot", "output_tokens_per_s"))
    assert "80 one above max_tokens" in check.why


def _longer(row: str) -> str:
    return row.replace('"input_class":"128"', '"input_class":"2000"')


def test_prompts_that_were_to_begin_alike_may_come_out_of_a_cache(run: Path) -> None:
    spoil.lines("requests.jsonl", lambda rows: [_cached(row) for row in rows])(run)
    spoil.in_run(options={"shared_prefix": 0.8, "shared_by": "trace"})(run)
    [check] = [one for one in judge(run, SLO).validity if one.check == "prefix cache"]
    assert (check.outcome, check.limit) == ("ok", "<= 0.9 of tokens")
    assert check.why == "Prompts were asked to begin alike: 0.8 of their tokens."
    spoil.in_run(options={"shared_prefix": 0.05})(run)
    [check] = [one for one in judge(run, SLO).validity if one.check == "prefix cache"]
    assert check.outcome == "void"
    assert check.why.endswith("The server knew more of them than that.")


def test_a_longer_run_than_asked_for_is_no_other_load(run: Path) -> None:
    evidence = read_evidence(run)
    asked = replace(SLO, load=Load(duration_s=10.0, warmup_s=1.0))
    assert load_checks.load(evidence.run, evidence.measured, asked).outcome == "ok"


def test_what_cannot_be_checked_says_so(run: Path, tmp_path: Path) -> None:
    (run / "target.json").unlink()
    write_run(run, replace(read_run(run), workers=()))
    verdict = judge(run, replace(SLO, load=Load()))
    assert verdict.result is Result.PASS
    open_ = {check.check for check in verdict.validity if check.outcome == "not checked"}
    assert open_ == {"target", "workers", "clocks", "load", "roofline"}
    short = make_run(tmp_path / "short", [0.1] * 100)
    open_ = {c.check for c in judge(short, SLO).validity if c.outcome == "not checked"}
    assert open_ >= {"warm-up", "clock"}


def test_a_short_run_proves_a_miss_and_nothing_else(run: Path) -> None:
    long = replace(SLO.validity, duration_s=120.0)
    slo = replace(SLO, validity=long, load=Load())
    verdict = judge(run, slo)
    assert verdict.result is Result.INVALID
    assert "length: The measured window was 40.0 s, asked are 120 s at least" in verdict.sentence
    missed = tuple(replace(o, limit=0.01) for o in slo.objectives)
    assert judge(run, replace(slo, objectives=missed)).result is Result.FAIL
    longer = tuple(replace(o, limit=50.0) for o in SLO.objectives)
    verdict = judge(run, replace(SLO, objectives=longer))
    assert "length: The measured window of 40.0 s is shorter than a limit of 50.0 s" in (
        verdict.sentence
    )


def test_a_stopped_run_is_held_to_what_was_due_before_the_stop(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0.1] * 200)
    planned = [
        Arrival(i, i / 10, "measured", "math", "en", "128", f"math-{i}", 64, i) for i in range(400)
    ]
    write_schedule(run, planned)
    spoil.counts(scheduled=400, not_started=200)(run)
    spoil.in_run(duration_s=40.0, finished=False, stopped=Stopped(20.0, "enough"))(run)
    assert len(list(read_schedule(run))) == 400
    verdict = judge(run, parse_slo(
        "version: 1\nservice: s\nobjectives: [{metric: ttft, percentile: 95, max: 420ms}]"
    ))  # fmt: skip
    assert verdict.result is Result.PASS
    assert {check.outcome for check in verdict.validity} == {"ok", "not checked"}


def test_lateness_within_its_limit_turns_nothing() -> None:
    assert load_checks.lateness(0.02, 0.021, ()).outcome == "ok"
    late = load_checks.lateness(0.022, 0.021, ())
    assert (late.outcome, late.voids) == ("noted", ())  # not "ok": it is above its limit
    assert "stands all the same" in late.why
    assert load_checks.lateness(0.022, 0.021, ["ttft p95"]).voids == ("ttft p95",)
    assert load_checks.lateness(None, 0.021, ()).outcome == "not checked"


def test_token_counts_below_the_chunks_of_text_are_in_doubt(run: Path) -> None:
    fewer = spoil.lines(
        "requests.jsonl",
        lambda rows: [row.replace('"output_tokens":10', '"output_tokens":3') for row in rows],
    )
    fewer(run)
    check = validity.tokens(read_evidence(run).measured)
    assert (check.outcome, check.measured) == ("void", "400 of 400")
    assert check.voids == ("tpot", "output_tokens_per_s")


def test_later_turns_of_a_session_may_come_out_of_a_cache(run: Path) -> None:
    later = [row.replace('"think_s":null', '"think_s":0.5') for row in map(_cached, _rows(run))]
    spoil.lines("requests.jsonl", lambda _: later)(run)
    evidence = read_evidence(run)
    check = target_checks.cache(evidence.run, evidence.measured, 0.01)
    assert check.outcome == "not checked"


def _rows(run: Path) -> list[str]:
    return (run / "requests.jsonl").read_text().splitlines(keepends=True)


def test_a_window_shorter_than_a_limit_is_void_whatever_least_duration_is_asked(run: Path) -> None:
    measured = read_evidence(run).measured
    missed = [replace(row, outcome=Result.FAIL) for row in judge(run, SLO).rows]
    far = [replace(one, limit=60.0) for one in SLO.objectives]
    for least_s in (0.0, 50.0):
        validity_ = replace(SLO.validity, duration_s=least_s)
        slo = replace(SLO, objectives=tuple(far), validity=validity_)
        check = validity.length(measured, slo, missed)
        assert (check.outcome, check.voids) == ("void", ("ttft p95 <= 420ms",))
