"""The schedule: what the options ask for, the same for any number of workers."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.open_loop import part
from loadtests.schedule import Load, arrivals, of_worker, sessions
from tests.loadtests.loops import LOAD

POISSON = replace(
    LOAD,
    arrival="poisson",
    rate_per_s=50.0,
    warmup_s=20.0,
    duration_s=180.0,
    mix={"math": 0.6, "code": 0.4},
    input_class="mixed",
)


def test_constant_arrivals_keep_their_distance_and_their_number() -> None:
    plan = list(arrivals(replace(LOAD, rate_per_s=7.0, warmup_s=3.0, duration_s=600.0)))
    assert len(plan) == 603 * 7
    assert plan[0].due_s == 0.0
    assert all(b.due_s - a.due_s == pytest.approx(1 / 7, abs=2e-6) for a, b in pairwise(plan))  # type: ignore[operator]
    assert sum(arrival.phase == "measured" for arrival in plan) == 600 * 7


def test_poisson_arrivals_have_the_rate_and_the_dispersion_of_a_poisson_process() -> None:
    counts = Counter(int(arrival.due_s or 0) for arrival in arrivals(POISSON))
    seconds = [counts[second] for second in range(200)]
    mean = sum(seconds) / 200
    variance = sum((count - mean) ** 2 for count in seconds) / 199
    assert mean == pytest.approx(50.0, abs=4 * (50 / 200) ** 0.5)
    assert 0.7 < variance / mean < 1.35  # 199 degrees of freedom: 3 standard errors


def test_the_mix_and_the_classes_have_their_shares() -> None:
    plan = list(arrivals(POISSON))
    for key, shares in {
        "scenario": {"math": 0.6, "code": 0.4},
        "lang": {"zh": 0.5, "en": 0.5},
        "input_class": {"128": 1 / 3, "512": 1 / 3, "896": 1 / 3},
    }.items():
        found = Counter(getattr(arrival, key) for arrival in plan)
        assert set(found) == set(shares)
        for name, share in shares.items():
            assert found[name] / len(plan) == pytest.approx(share, abs=0.025)


def test_another_mix_keeps_the_times_and_another_seed_does_not() -> None:
    times = [arrival.due_s for arrival in arrivals(POISSON)]
    assert times == [a.due_s for a in arrivals(replace(POISSON, mix={"code": 1.0}))]
    assert times != [a.due_s for a in arrivals(replace(POISSON, seed=6))]
    assert list(arrivals(POISSON)) == list(arrivals(POISSON))


@given(workers=st.integers(1, 9), seed=st.integers(0, 2**31), turns=st.integers(1, 3))
def test_the_workers_parts_together_are_the_plan(workers: int, seed: int, turns: int) -> None:
    load: Load = replace(POISSON, duration_s=3.0, warmup_s=1.0, seed=seed, turns=turns)
    plan = list(arrivals(load))
    parts = [list(of_worker(sessions(load), worker, workers)) for worker in range(workers)]
    turns = [[turn for session in one for turn in session] for one in parts]
    assert all(a.session % workers == worker for worker, one in enumerate(turns) for a in one)
    assert sorted((a for one in turns for a in one), key=lambda a: a.seq) == plan
    assert [arrival.seq for arrival in plan] == list(range(len(plan)))


@given(whole=st.integers(1, 10_000), workers=st.integers(1, 50))
def test_the_parts_of_a_bound_add_up_to_it(whole: int, workers: int) -> None:
    parts = [part(whole, worker, workers) for worker in range(workers)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1
