"""Arrivals as planned and as sent, under every process; the tokens of the text beside usage."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from loadtests.schedule import Load, due_times
from slo import load_checks, validity
from slo.evidence import Schedule
from slo.measurements import collect
from slo.record import Failure, Record
from slo.rundir import Run, read_records, read_run
from tests.slo.make_run import make_run

WINDOW = (5.0, 125.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Record]]:
    directory = make_run(tmp_path_factory.mktemp("run"), [0.1] * 200)
    return read_run(directory), list(read_records(directory))


def planned(arrival: str, seed: int = 3) -> Schedule:
    load = Load(arrival, 20.0, 5.0, 120.0, {"math": 1.0}, "128", 16, seed)
    due = np.array(list(due_times(load)))
    return Schedule(np.arange(len(due), dtype=float), due, due >= 5.0)


PROCESSES = ["poisson", "constant", "gamma:0.3", "gamma:5", "ramp:5/s,40/s", "steps:5/s,40/s,10/s"]


@pytest.mark.parametrize("arrival", [*PROCESSES, "spike:80/s,20s"])
def test_each_process_looks_like_itself_and_not_like_another(
    made: tuple[Run, list[Record]], arrival: str
) -> None:
    of = replace(made[0], arrival=arrival, rate_per_s=20.0, warmup_s=5.0, duration_s=120.0)
    for seed in range(20):
        check = load_checks.arrivals(of, planned(arrival, seed), WINDOW)
        assert check.outcome == "ok", check.why
    for other in PROCESSES:
        if other != arrival:
            assert load_checks.arrivals(of, planned(other), WINDOW).outcome == "void", other


@pytest.mark.parametrize("arrival", ["serial", "concurrency:8", "replay:trace.csv", "unheard-of"])
def test_a_process_without_a_rate_of_its_own_is_not_judged_by_one(
    made: tuple[Run, list[Record]], arrival: str
) -> None:
    of = replace(made[0], arrival=arrival)
    check = load_checks.arrivals(of, planned("poisson"), WINDOW)
    assert check.outcome == "not checked"
    assert ("closed loop" in check.why) == (arrival in ("serial", "concurrency:8"))


def test_what_was_planned_well_and_sent_in_bursts_is_seen(made: tuple[Run, list[Record]]) -> None:
    plan = planned("poisson")
    sent: Callable[[float], float] = lambda due_s: np.ceil(due_s / 5) * 5  # noqa: E731
    template = made[1][0]
    records = [
        replace(template, seq=seq, due_s=float(due_s), sent_s=float(sent(due_s)), phase="measured")
        for seq, due_s in enumerate(plan.due_s)
    ]
    of = replace(made[0], arrival="poisson", rate_per_s=20.0, warmup_s=5.0, duration_s=120.0)
    check = load_checks.arrivals(of, plan, WINDOW, collect(records, of))
    assert check.outcome == "void"
    assert "sent in more bursts" in check.why
    on_time = [replace(record, sent_s=record.due_s) for record in records]
    assert load_checks.arrivals(of, plan, WINDOW, collect(on_time, of)).outcome == "ok"


@pytest.mark.parametrize(("off", "outcome"), [(0, "ok"), (3, "ok"), (30, "void")])
def test_usage_that_the_text_does_not_bear_out_voids_what_is_per_token(
    made: tuple[Run, list[Record]], off: int, outcome: str
) -> None:
    run, records = made
    counted = [
        replace(r, output_tokens=100, text_tokens=100 - off, max_tokens=100) for r in records
    ]
    check = validity.tokens(collect(counted, run))
    assert check.outcome == outcome
    if outcome == "void":
        assert set(check.voids) == {"tpot", "output_tokens_per_s"}
        assert "differ" in check.why


def test_requests_that_were_refused_were_started_all_the_same(
    made: tuple[Run, list[Record]],
) -> None:
    run, records = made
    refused = [
        replace(r, error=Failure.REFUSED, sent_s=r.due_s, first_token_s=None) for r in records
    ]
    check = load_checks.achieved_rate(collect(refused, run), 0.99)
    assert check.outcome == "ok"
