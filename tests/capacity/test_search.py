"""The pure search: what probes prove together, what never bounds, where it ends."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from slo import capacity_search
from slo.capacity import Bounds, Evidence, Probe, bounds
from slo.capacity_plan import Ask, Limits, Stop, next_step
from slo.capacity_search import Search
from slo.rundir import RunDirError
from slo.verdict import Result
from target.physics import GPUS, Setup
from target.scheduler import Arrival, simulate
from tests.benchmarks import capacity_search as bench
from tests.benchmarks import fast_trace

LIMITS = Limits(low=1.0, high=1000.0, budget_s=3600.0)


def probe(rate: float, over: float, worth: float, result: Result = Result.INCONCLUSIVE) -> Probe:
    evidence = (Evidence("ttft p95", over, worth, 0.05, 0.95),)
    return Probe(rate, result, int(worth) + 1, 10.0, evidence)


def spoilt(rate: float, times: int = 1) -> list[Probe]:
    return [replace(probe(rate, 500, 500), result=Result.INVALID, why="lateness")] * times


def test_two_probes_that_prove_nothing_alone_prove_it_together() -> None:
    assert bounds([probe(5, 1, 50)]) == Bounds(None, None)
    assert bounds([probe(5, 1, 50), probe(5, 1, 50)]) == Bounds(None, None)
    assert bounds([probe(5, 1, 80), probe(5, 1, 80)]).passes == 5


def test_a_probe_at_a_higher_rate_counts_for_a_lower_one_and_not_the_other_way() -> None:
    assert bounds([probe(5, 0, 30), probe(6, 0, 30)]).passes == 5
    assert bounds([probe(5, 0, 60), probe(6, 0, 10)]).passes == 5


def test_a_failure_counts_for_every_higher_rate() -> None:
    found = bounds([probe(5, 7, 80), probe(8, 7, 80), probe(4, 0, 100)])
    assert found == Bounds(4, 8)


def test_a_claim_is_never_above_a_rate_that_was_proven_to_fail() -> None:
    assert bounds([probe(5, 90, 100), probe(6, 0, 400)]) == Bounds(None, 5)


def test_a_short_probe_without_a_burst_is_worth_no_more_than_a_long_one_below_it() -> None:
    lucky = Probe(6, Result.PASS, 100, 10, (Evidence("ttft p95", 0, 90, 0.05, 0.95),))
    long = Probe(5, Result.INCONCLUSIVE, 5000, 900, (Evidence("ttft p95", 1, 50, 0.05, 0.95),))
    assert bounds([lucky]).passes == 6
    assert bounds([lucky, long]).passes is None


def test_an_invalid_probe_is_no_bound_and_a_full_in_flight_bound_is_one() -> None:
    known = [probe(4, 0, 100), *spoilt(8, 2)]
    assert bounds(known) == Bounds(4, None)
    full = replace(probe(8, 300, 300, Result.FAIL), why="in_flight_cap")
    assert bounds([*known, full]) == Bounds(4, 8)


def test_what_is_missed_and_is_no_share_bounds_by_itself() -> None:
    missed = replace(probe(7, 0, 500, Result.FAIL), fails="achieved_rate")
    assert bounds([probe(4, 0, 100), missed]) == Bounds(4, 7)


def test_every_objective_must_pass() -> None:
    both = (Evidence("ttft p95", 0, 100, 0.05, 0.95), Evidence("e2e p95", 6, 100, 0.05, 0.95))
    assert bounds([Probe(5, Result.INCONCLUSIVE, 100, 10, both)]).passes is None


def test_a_rate_that_is_invalid_again_and_again_is_not_asked_any_more() -> None:
    known = [probe(4, 0, 100), *spoilt(8, 3)]
    step = next_step(known, LIMITS)
    assert isinstance(step, Ask)
    assert step.rate < 8
    stop = next_step(spoilt(1, 3), LIMITS)
    assert isinstance(stop, Stop)
    assert (stop.reason, "lateness" in stop.why) == ("not measurable", True)


def test_it_ends_with_why() -> None:
    ends = {
        "resolution": [probe(5, 0, 100), probe(5.2, 90, 100)],
        "budget": [replace(probe(5, 1, 50), spent_s=3600.0), probe(6, 5, 50)],
        "nothing passes": [probe(1, 90, 100, Result.FAIL)],
    }
    for reason, probes in ends.items():
        stop = next_step(probes, LIMITS)
        assert isinstance(stop, Stop)
        assert stop.reason == reason


def test_users_are_whole_numbers() -> None:
    step = next_step([probe(4, 0, 100), probe(8, 40, 100)], replace(LIMITS, whole=True))
    assert isinstance(step, Ask)
    assert step.rate == round(step.rate)


def test_a_search_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    search = Search({"target": "http://x"}, Limits(1.0, math.inf), (probe(5, 1, 50),), seed=7)
    capacity_search.write_search(tmp_path, search)
    assert capacity_search.read_search(tmp_path) == search
    path = tmp_path / capacity_search.FILE
    path.write_text(path.read_text().replace('"rate": 5', '"rate": "five"'))
    with pytest.raises(RunDirError, match=r"capacity\.json: probes\.0\.rate"):
        capacity_search.read_search(tmp_path)


@pytest.mark.parametrize(("gpu", "seats", "load"), [("l4", 16, 1.4), ("h200", 64, 0.9)])
def test_the_bench_s_quick_scheduler_gives_the_times_of_the_real_one(
    gpu: str, seats: int, load: float
) -> None:
    setup, rng, now = Setup(GPUS[gpu], max_num_seqs=seats), random.Random(3), 0.0
    trace = []
    for _ in range(600):
        now += rng.expovariate(load * {"l4": 19.0, "h200": 350.0}[gpu])
        trace.append(Arrival(now, rng.randint(16, 3000), 1 + int(rng.expovariate(1 / 64))))
    first, last = fast_trace.run(
        [a.at_s for a in trace], [a.prompt for a in trace], [a.output for a in trace], setup
    )
    real = simulate(trace, setup)
    assert first == pytest.approx([times.first_s for times in real], abs=1e-9)
    assert last == pytest.approx([times.last_s for times in real], abs=1e-9)


def test_searches_on_a_known_answer_come_near_it_and_claim_no_more() -> None:
    shape = bench.SHAPES[2]
    found = [bench.searched(seed, shape, 628.0, 10_000) for seed in range(8)]
    ratios = sorted(ratio for ratio, _ in found)
    assert ratios[-1] <= 1.05
    assert ratios[4] >= 0.8
    assert all(requests <= 10_000 * 1.05 for _, requests in found)
