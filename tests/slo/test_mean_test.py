"""Means beside a limit: the chance of a miss is that of the error which made the interval."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, ttest_1samp

from slo.mean_test import Interval, mean_interval, ratio, within
from slo.objectives import Bound, Objective
from slo.quantile_test import holm
from slo.verdict import Result

VALUES = np.random.default_rng(7).normal(100.0, 10.0, 60)
MEANS = VALUES.reshape(10, 6).mean(axis=1)


def asked(limit: float, bound: Bound = "max", confidence: float = 0.95) -> Objective:
    return Objective("gpu_power_mean", limit, f"{limit}W", "W", confidence=confidence, bound=bound)


@pytest.mark.parametrize("limit", [95.0, 98.0, 100.0, 103.0])
@pytest.mark.parametrize(("bound", "side"), [("max", "greater"), ("min", "less")])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_chance_of_a_miss_is_that_of_students_test(
    limit: float, bound: Bound, side: str, confidence: float
) -> None:
    found = mean_interval(VALUES, confidence)
    assert found is not None
    decision = within(asked(limit, bound, confidence), found, 60)
    known = ttest_1samp(MEANS, limit, alternative=side).pvalue
    assert decision.p_missed == pytest.approx(known, rel=1e-9)


@given(
    st.lists(st.floats(50.0, 150.0), min_size=10, max_size=80),
    st.floats(50.0, 150.0),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_a_miss_alone_is_a_chance_below_what_the_confidence_leaves(
    values: list[float], limit: float, confidence: float
) -> None:
    found = mean_interval(np.array(values), confidence)
    assert found is not None
    decision = within(asked(limit, confidence=confidence), found, len(values))
    if not math.isclose(found.low, limit, rel_tol=1e-9):
        assert (decision.outcome is Result.FAIL) == (decision.p_missed < 1 - confidence)


def test_a_miss_that_only_normal_tails_would_make_sure_may_be_chance_beside_others() -> None:
    found = mean_interval(VALUES, 0.95)
    assert found is not None
    error = float(MEANS.std(ddof=1)) / math.sqrt(10)
    limit = found.value - 2.1 * error  # t of 2.1: 0.033 with 9 degrees of freedom, normal 0.018
    decision = within(asked(limit), found, 60)
    assert decision.outcome is Result.FAIL
    assert float(norm.sf(2.1)) < 0.05 / 2 < decision.p_missed < 0.05
    assert holm([decision.p_missed], [0.05]) == [True]
    assert holm([decision.p_missed, 0.9], [0.05, 0.05]) == [False, False]


def test_what_has_no_degrees_of_freedom_stays_normal() -> None:
    decision = within(asked(0.1), Interval(0.2, 0.15, 0.25), 60)
    error = 0.05 / float(norm.ppf(0.95))
    assert decision.p_missed == pytest.approx(float(norm.sf(0.1 / error)), rel=1e-9)


def test_a_change_has_the_fewer_degrees_of_freedom_of_its_two_sides() -> None:
    of_percentiles = ratio(Interval(2.0, 1.9, 2.1), Interval(1.0, 0.9, 1.1))
    assert (of_percentiles.value, of_percentiles.freedom) == (pytest.approx(1.0), math.inf)
    assert ratio(Interval(2.0, 1.9, 2.1, 9), Interval(1.0, 0.9, 1.1, 12)).freedom == 9
