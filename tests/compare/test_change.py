"""The intervals of a change, against known answers and other people's code."""

import math

import numpy as np
import pytest
from scipy import stats

from slo.compare_change import (
    Estimate,
    Interval,
    logarithm,
    of_pairs,
    of_runs,
    of_shares,
    ratio,
    wilson,
    within,
)

ABBA = [False, True] * 4


def test_pairs_give_the_t_interval_of_their_differences() -> None:
    differences = [0.1, 0.3, 0.2, 0.25, 0.15]
    found = of_pairs(differences, [False] * 5, 0.95)
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_steady_drift_falls_out_of_pairs_in_turns() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.01, 8)
    still = of_pairs(list(noise), ABBA, 0.95)
    drift = 0.05 * np.where(ABBA, -1, 1)
    drifting = of_pairs(list(noise + drift), ABBA, 0.95)
    assert drifting.change == pytest.approx(still.change)
    assert (drifting.low, drifting.high) == pytest.approx((still.low, still.high))


def test_pairs_in_one_order_only_keep_the_drift() -> None:
    found = of_pairs([0.05, 0.051, 0.049, 0.05, 0.05, 0.05], [False] * 6, 0.95)
    assert found.low is not None
    assert found.low > 0.04


def test_runs_give_the_interval_of_welch() -> None:
    before, after = [1.0, 1.1, 0.9, 1.05], [1.3, 1.5, 1.1]
    found = of_runs(before, after, 0.9)
    result = stats.ttest_ind(after, before, equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((result.low, result.high))


def test_two_runs_a_side_are_too_few_for_their_own_spread() -> None:
    assert of_runs([1.0, 1.1], [1.2, 1.3], 0.95) == Interval(None, None, None)


def test_one_run_a_side_adds_the_ends_of_both_and_the_assumed_drift() -> None:
    before, after = Estimate(1.0, 0.7, 1.4), Estimate(2.0, 1.6, 2.3)
    plain = within([before], [after], 0.95, 0.0)
    assert plain == Interval(1.0, pytest.approx(1 - math.hypot(0.4, 0.4)),
                             pytest.approx(1 + math.hypot(0.3, 0.3)))  # fmt: skip
    shaken = within([before], [after], 0.95, 0.1)
    assert shaken.high == pytest.approx(1 + math.sqrt(0.18 + 2 * (1.959964 * 0.1) ** 2))


def test_a_percentile_that_falls_among_the_failures_is_still_known_to_be_worse() -> None:
    before, after = (logarithm(e) for e in (Estimate(1, 0.9, 1.1), Estimate(math.inf, 30, None)))
    found = ratio(within([before], [after], 0.95, 0.0))
    assert found.change is None
    assert found.low == pytest.approx(30 / 1.1 - 1)
    assert found.high is None


def test_an_interval_without_an_end_gives_a_change_without_that_end() -> None:
    found = within([Estimate(1.0, 0.9, 1.1)], [Estimate(2.0, 1.8, None)], 0.95, 0.0)
    assert found.low is not None
    assert found.high is None


@pytest.mark.parametrize(("part", "n"), [(0, 20), (3, 20), (20, 20), (450, 1000)])
def test_a_share_has_the_interval_of_wilson(part: int, n: int) -> None:
    known = stats.binomtest(part, n).proportion_ci(0.95, method="wilson")
    assert wilson(part, n) == pytest.approx((known.low, known.high), abs=1e-12)


def test_two_shares_have_the_interval_of_newcombe() -> None:
    """His example: 56 of 70 against 48 of 80, difference 0.2, 0.0524 to 0.3339."""
    found, _ = of_shares((48, 80), (56, 70), 0.95)
    assert found.change == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_no_failure_on_either_side_is_no_proof_of_no_change() -> None:
    found, _ = of_shares((0, 100), (0, 100), 0.95)
    assert found.low == pytest.approx(-0.037, abs=1e-3)
    assert found.high == pytest.approx(0.037, abs=1e-3)
