"""Is a stream of arrivals the process that run.json names?"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slo import load_checks
from slo.evidence import Schedule
from slo.rundir import read_run
from tests.slo.make_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", [0.1] * 4)


def _schedule(due: list[float]) -> Schedule:
    return Schedule(np.arange(float(len(due))), np.array(due), np.full(len(due), True))


def _poisson(rate: float, end: float, seed: int) -> list[float]:
    times, due, at = random.Random(seed), [], 0.0
    while (at := at + times.expovariate(rate)) < end:
        due.append(round(at, 6))
    return due


def test_true_poisson_streams_pass_whatever_their_seed(run: Path) -> None:
    of = replace(read_run(run), arrival="poisson", rate_per_s=5.0)
    outcomes = [
        load_checks.arrivals(of, _schedule(_poisson(5, 60, seed)), (0.0, 60.0)).outcome
        for seed in range(300)
    ]
    assert set(outcomes) == {"ok"}


@pytest.mark.parametrize(
    ("due", "says"),
    [
        (lambda: [i // 10 * 2.0 for i in range(300)], "in more bursts than Poisson"),
        (lambda: [i / 5 for i in range(300)], "more evenly than Poisson"),
        (lambda: _poisson(7, 60, 1), "of 300 expected arrivals were planned"),
    ],
)
def test_streams_that_are_no_poisson_ones_are_seen(
    run: Path, due: Callable[[], list[float]], says: str
) -> None:
    of = replace(read_run(run), arrival="poisson", rate_per_s=5.0)
    check = load_checks.arrivals(of, _schedule(due()), (0.0, 60.0))
    assert check.outcome == "void"
    assert says in check.why


def test_constant_arrivals_off_beat_are_seen(run: Path) -> None:
    of = replace(read_run(run), rate_per_s=5.0)
    due = [i / 5 + (0.01 if i == 40 else 0) for i in range(300)]
    check = load_checks.arrivals(of, _schedule(due), (0.0, 60.0))
    assert (check.outcome, check.why) == ("void", "Constant arrivals are 10.0 ms off beat.")


def test_few_arrivals_are_too_few_to_tell_a_process(run: Path) -> None:
    of = replace(read_run(run), arrival="poisson", rate_per_s=1.0)
    check = load_checks.arrivals(of, _schedule(_poisson(1, 20, 4)), (0.0, 20.0))
    assert check.outcome == "not checked"
