"""The exact test of a percentile: known answers, and that worse never looks better."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from slo.quantile_test import (
    Thresholds,
    decide_percentile,
    decide_share,
    holm,
    more_requests,
    thresholds,
)
from slo.sample import Sample
from slo.verdict import Result

RANK = {Result.FAIL: 0, Result.INCONCLUSIVE: 1, Result.PASS: 2}


def sample(values: list[float]) -> Sample:
    """Requests all due at once: their neighbours show no likeness, so that each counts as one."""
    ordered = np.sort(np.array(values, dtype=float))
    due = np.zeros(len(values))
    return Sample(ordered, ordered, np.arange(1, len(values) + 1), due, ordered)


@pytest.mark.parametrize(
    ("n", "percentile", "confidence", "meets", "misses"),
    [
        (100, 95, 0.95, 1, 10),
        (1000, 95, 0.95, 38, 63),
        (5000, 95, 0.95, 224, 277),
        (58, 95, 0.95, -1, 7),  # too few for any PASS
        (59, 95, 0.95, 0, 7),
        (298, 99, 0.95, -1, 7),
        (299, 99, 0.95, 0, 7),
        (89, 95, 0.99, -1, 11),
        (90, 95, 0.99, 0, 11),
        (0, 95, 0.95, -1, 1),
    ],
)
def test_thresholds_are_the_tabulated_ones(
    n: int, percentile: float, confidence: float, meets: int, misses: int
) -> None:
    assert thresholds(n, 1 - percentile / 100, confidence) == Thresholds(meets, misses)


@given(
    st.integers(10, 3000), st.floats(0.001, 0.6), st.sampled_from([0.8, 0.9, 0.95, 0.99]), st.data()
)
def test_thresholds_agree_with_the_clopper_pearson_bounds(
    n: int, allowed: float, confidence: float, data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, n))
    ends = thresholds(n, allowed, confidence)
    upper = beta.ppf(confidence, k + 1, n - k) if k < n else 1.0
    lower = beta.ppf(1 - confidence, k, n - k + 1) if k else 0.0
    if abs(upper - allowed) > 1e-9:
        assert (k <= ends.meets) == (upper <= allowed)
    if abs(lower - allowed) > 1e-9:
        assert (k >= ends.misses) == (lower > allowed)


def test_the_percentile_is_the_order_statistic_of_the_ceiling_rank() -> None:
    decision = decide_percentile(sample([i / 100 for i in range(1, 101)]), 95, 2.0, 0.95)
    assert decision.measured == 0.95
    # 1 over proves it met, 10 over prove it missed: ranks 100 - 1 and 100 - 10 + 1.
    assert (decision.low, decision.high) == (0.91, 0.99)


@pytest.mark.parametrize(
    ("over", "outcome"),
    [
        (0, Result.PASS),
        (38, Result.PASS),
        (39, Result.INCONCLUSIVE),
        (62, Result.INCONCLUSIVE),
        (63, Result.FAIL),
        (1000, Result.FAIL),
    ],
)
def test_a_thousand_requests_decide_p95_at_the_tabulated_counts(over: int, outcome: Result) -> None:
    decision = decide_percentile(sample([0.1] * (1000 - over) + [0.5] * over), 95, 0.42, 0.95)
    assert (decision.outcome, decision.over) == (outcome, over)


@given(
    st.lists(st.floats(0.001, 10) | st.just(np.inf), min_size=1, max_size=400),
    st.floats(0.01, 11),
    st.sampled_from([50.0, 90.0, 95.0, 99.0]),
)
def test_the_interval_and_the_outcome_say_the_same(
    values: list[float], limit: float, percentile: float
) -> None:
    decision = decide_percentile(sample(values), percentile, limit, 0.95)
    met = decision.high is not None and decision.high <= limit
    assert (decision.outcome is Result.PASS) == met
    if decision.low is not None:
        assert (decision.outcome is Result.FAIL) == (decision.low > limit)
    if decision.low is not None and decision.measured is not None:
        assert decision.low <= decision.measured


@given(
    st.lists(st.floats(0.001, 10), min_size=1, max_size=300),
    st.data(),
    st.floats(0.01, 11),
    st.sampled_from([50.0, 90.0, 95.0, 99.0]),
)
def test_more_failures_or_larger_latencies_never_improve_an_outcome(
    values: list[float], data: st.DataObject, limit: float, percentile: float
) -> None:
    worse = [
        data.draw(st.sampled_from([value, value * 1.5, value + 5, np.inf])) for value in values
    ]
    before = decide_percentile(sample(values), percentile, limit, 0.95)
    after = decide_percentile(sample(worse), percentile, limit, 0.95)
    assert RANK[after.outcome] <= RANK[before.outcome]
    assert after.p_missed <= before.p_missed


@given(st.integers(1, 2000), st.data(), st.floats(0.001, 0.5))
def test_more_failures_never_improve_an_error_rate(
    n: int, data: st.DataObject, allowed: float
) -> None:
    fewer = data.draw(st.integers(0, n))
    more = data.draw(st.integers(fewer, n))
    before, after = (decide_share(k, k, n, allowed, 0.95) for k in (fewer, more))
    assert RANK[after.outcome] <= RANK[before.outcome]


def test_a_percentile_among_failures_has_no_value() -> None:
    decision = decide_percentile(sample([0.1] * 90 + [np.inf] * 10), 95, 0.42, 0.95)
    assert decision.measured is None
    assert decision.high is None
    assert decision.outcome is Result.FAIL


def test_no_values_are_no_pass_and_say_how_many_are_needed() -> None:
    decision = decide_percentile(sample([]), 95, 0.42, 0.95)
    assert (decision.outcome, decision.n, decision.more) == (Result.INCONCLUSIVE, 0, 59)


def test_fewer_than_min_samples_are_inconclusive_whatever_they_show() -> None:
    for value in (0.1, 9.0):
        decision = decide_percentile(sample([value] * 100), 95, 0.42, 0.95, min_samples=101)
        assert decision.outcome is Result.INCONCLUSIVE


def test_values_known_between_two_bounds_decide_nothing_in_our_favour() -> None:
    """20 of 100 were cancelled after 0.2 s: they may have met 0.42 s, or not."""
    at_least = np.sort(np.array([0.1] * 80 + [0.2] * 20))
    at_most = np.sort(np.array([0.1] * 80 + [np.inf] * 20))
    unsure = Sample(at_least, at_most, np.arange(1, 101), np.zeros(100), at_least)
    assert decide_percentile(unsure, 95, 0.42, 0.95).outcome is Result.INCONCLUSIVE
    assert decide_percentile(unsure, 95, 0.15, 0.95).outcome is Result.FAIL
    assert decide_percentile(unsure, 50, 0.15, 0.95).outcome is Result.PASS


def test_gaps_of_one_request_are_no_new_evidence() -> None:
    """10 requests of 100 gaps each are 10 requests: not enough for any P95."""
    gaps = np.full(1, 0.02)
    few = Sample(gaps, gaps, np.array([1000]), np.zeros(10), np.full(10, 0.02))
    many = Sample(gaps, gaps, np.array([1000]), np.zeros(100), np.full(100, 0.02))
    assert decide_percentile(few, 95, 0.1, 0.95).outcome is Result.INCONCLUSIVE
    assert decide_percentile(many, 95, 0.1, 0.95).outcome is Result.PASS


@pytest.mark.parametrize(
    ("over", "n", "allowed", "more"),
    [(0, 0, 0.05, 59), (0, 40, 0.05, 19), (0, 100, 0.01, 199), (5, 100, 0.05, None)],
)
def test_how_many_more_would_decide(over: int, n: int, allowed: float, more: int | None) -> None:
    assert more_requests(over, n, allowed, 0.95) == more


def test_as_many_more_as_it_says_do_decide_at_the_same_share() -> None:
    for over in (3, 4, 7, 9):
        more = more_requests(over, 100, 0.05, 0.95)
        assert more is not None
        n = 100 + more
        k = round(over / 100 * n)
        assert decide_share(k, k, n, 0.05, 0.95).outcome is not Result.INCONCLUSIVE


def test_an_error_rate_has_the_exact_interval() -> None:
    decision = decide_share(0, 0, 300, 0.02, 0.95)
    assert decision.outcome is Result.PASS
    assert decision.high == pytest.approx(1 - 0.05 ** (1 / 300))
    assert decide_share(0, 0, 148, 0.02, 0.95).outcome is Result.INCONCLUSIVE
    assert decide_share(0, 0, 149, 0.02, 0.95).outcome is Result.PASS
    everything = decide_share(50, 50, 50, 0.02, 0.95)
    assert (everything.measured, everything.high) == (1.0, 1.0)


def test_holm_keeps_the_sure_misses_and_drops_those_that_may_be_chance() -> None:
    assert holm([0.04], [0.05]) == [True]
    assert holm([0.04, 0.5], [0.05, 0.05]) == [False, False]
    assert holm([0.01, 0.04], [0.05, 0.05]) == [True, True]
    assert holm([0.04, 0.001, 0.5], [0.05, 0.05, 0.05]) == [False, True, False]
    assert holm([], []) == []
