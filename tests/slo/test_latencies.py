"""What a latency is: one definition, the same for one record and for all of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slo.latencies import (
    e2e_s,
    gaps_s,
    in_batches,
    lateness_s,
    latenesses,
    spans,
    tpot_s,
    tpots,
    ttfat_s,
    ttft_s,
)
from slo.measurements import Measurements, collect
from slo.record import Failure, Record
from slo.rundir import Run, Stopped, read_records, read_run
from tests.slo.make_run import make_run

GOOD = Record(
    0, 10.0, "measured", "math", "en", "128", "p", 64, 0, 0, None, None, 0,
    sent_s=10.25, first_event_s=10.5, first_token_s=11.0, first_answer_token_s=12.0,
    last_token_s=14.0, ended_s=14.5, output_tokens=7, first_chunk_tokens=1, tokens_from="usage",
    chunks=3, itl_ms=(1000.0, 2000.0),
)  # fmt: skip


def run_of(tmp_path: Path, **fields: object) -> Run:
    return replace(read_run(make_run(tmp_path / "run", [0.1])), **fields)


def measured(tmp_path: Path, *records: Record, **fields: object) -> Measurements:
    return collect(records, run_of(tmp_path, **fields))


def test_latencies_count_from_due_and_not_from_sent() -> None:
    assert ttft_s(GOOD) == 1.0
    assert ttfat_s(GOOD) == 2.0
    assert e2e_s(GOOD) == 4.0
    assert lateness_s(GOOD) == 0.25
    assert tpot_s(GOOD) == 0.5  # 3 s for 7 - 1 tokens
    assert gaps_s(GOOD) == (1.0, 2.0)


def test_a_failed_request_has_no_latency_even_where_it_began_to_answer() -> None:
    cut = replace(GOOD, error=Failure.CUT_MID_STREAM)
    assert [f(cut) for f in (ttft_s, ttfat_s, e2e_s, tpot_s)] == [None] * 4
    assert lateness_s(cut) == 0.25


def test_an_answer_of_one_chunk_has_no_time_per_token() -> None:
    assert tpot_s(replace(GOOD, output_tokens=1)) is None
    assert tpot_s(replace(GOOD, output_tokens=None)) is None


def test_columns_say_the_same_as_the_record(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    run = make_run(
        tmp_path / "run", rng.lognormal(-1, 1, 60).tolist(), failures=9, scenarios=("math", "code")
    )
    records = [GOOD, replace(GOOD, output_tokens=None), *read_records(run)]
    single: dict[str, Callable[[Record], float | None]] = {
        "ttft": ttft_s, "ttfat": ttfat_s, "e2e": e2e_s,
    }  # fmt: skip
    batches = list(in_batches(records, size=17))
    assert sum(len(batch) for batch in batches) == len(records)
    for metric, one in single.items():
        whole = np.concatenate([spans(batch, metric) for batch in batches])
        assert [None if np.isnan(v) else v for v in whole.tolist()] == [one(r) for r in records]
    for vector, one in ((tpots, tpot_s), (latenesses, lateness_s)):
        whole = np.concatenate([vector(batch) for batch in batches])
        assert [None if np.isnan(v) else v for v in whole.tolist()] == [one(r) for r in records]


def test_a_failure_is_over_every_target_and_not_left_out(tmp_path: Path) -> None:
    found = measured(tmp_path, GOOD, replace(GOOD, seq=1, error=Failure.RESET))
    for metric in ("ttft", "e2e", "tpot", "ttft_from_sent"):
        sample = found.sample(metric)
        assert (sample.n, sample.over(sample.at_most, 1e9)) == (2, 1)


def test_a_failure_stands_for_as_many_gaps_as_others_have(tmp_path: Path) -> None:
    found = measured(tmp_path, GOOD, replace(GOOD, seq=1, error=Failure.RESET))
    sample = found.sample("itl")
    # Its own two gaps are no latencies; two that are over every target stand in their place.
    assert (sample.n, sample.over(sample.at_least, 3.0)) == (4, 2)
    assert len(sample.due_s) == len(sample.typical) == 2
    assert sample.at_most[0] == pytest.approx(1.0, rel=1e-3)


def test_warmup_and_dropped_arrivals_are_not_judged(tmp_path: Path) -> None:
    found = measured(
        tmp_path,
        GOOD,
        replace(GOOD, seq=1, phase="warmup"),
        replace(GOOD, seq=2, error=Failure.DROPPED, sent_s=None),
    )
    assert found.judged().tolist() == [True, False, False]
    assert found.sample("e2e").n == 1


@pytest.mark.parametrize(
    ("reasoning", "n", "over"), [("tag", 2, 1), ("field", 2, 1), ("none", 0, 0), ("unknown", 1, 0)]
)
def test_reasoning_that_never_ends_is_over_the_target(
    tmp_path: Path, reasoning: str, n: int, over: int
) -> None:
    endless = replace(GOOD, seq=1, first_answer_token_s=None)
    sample = measured(tmp_path, GOOD, endless, reasoning=reasoning).sample("ttfat")
    assert (sample.n, sample.over(sample.at_most, 1e9)) == (n, over)


def test_a_cancelled_request_took_at_least_as_long_as_we_waited(tmp_path: Path) -> None:
    waiting = replace(
        GOOD, error=Failure.CANCELLED, first_token_s=None, first_answer_token_s=None,
        last_token_s=None, ended_s=13.0, itl_ms=(),
    )  # fmt: skip
    streaming = replace(GOOD, seq=1, error=Failure.CANCELLED, last_token_s=None, ended_s=13.0)
    stopped = Stopped(13.0, "asked to")
    found = measured(tmp_path, waiting, streaming, stopped=stopped, finished=False)
    ttft, e2e = found.sample("ttft"), found.sample("e2e")
    assert (ttft.at_least.tolist(), ttft.at_most.tolist()) == ([1.0, 3.0], [1.0, np.inf])
    assert (e2e.at_least.tolist(), e2e.at_most.tolist()) == ([3.0, 3.0], [np.inf, np.inf])
    assert found.failed() == (0, 2)


def test_a_run_that_was_stopped_ends_its_window_there(tmp_path: Path) -> None:
    run = run_of(tmp_path, duration_s=60.0, warmup_s=5.0, stopped=Stopped(20.0, "asked to"))
    assert collect([], run).window_s == (5.0, 20.0)
    assert collect([], replace(run, stopped=None)).window_s == (5.0, 65.0)
    assert collect([], replace(run, stopped=Stopped(2.0, "asked to"))).window_s == (5.0, 5.0)


def test_output_tokens_count_in_the_second_in_which_they_came(tmp_path: Path) -> None:
    # 8 tokens evenly from 1 s to 5 s, of which the window of 0 s to 3 s sees 4.
    record = replace(GOOD, due_s=0.0, first_token_s=1.0, last_token_s=5.0, output_tokens=8)
    found = measured(tmp_path, record, duration_s=3.0)
    assert found.tokens_per_second().tolist() == [0.0, 2.0, 2.0]
