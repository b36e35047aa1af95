"""How many requests are worth one: known answers, and what leaves it as it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo import dependence, far_limit
from slo.quantile_test import decide_percentile, decide_share, percentile_interval
from slo.sample import Sample
from slo.verdict import Result
from tests.benchmarks.queues import Queue, runs, true_percentile


def autoregressive(n: int, likeness: float, seed: int) -> np.ndarray:
    """A series whose correlation time is (1 + likeness) / (1 - likeness)."""
    rng = np.random.default_rng(seed)
    values, noise = np.empty(n), rng.normal(size=n)
    values[0] = noise[0]
    for i in range(1, n):
        values[i] = likeness * values[i - 1] + np.sqrt(1 - likeness**2) * noise[i]
    return values


def sample(due_s: np.ndarray, values: np.ndarray) -> Sample:
    ordered = np.sort(values)
    return Sample(ordered, ordered, np.arange(1, len(values) + 1), due_s, values)


@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.9])
def test_the_correlation_time_of_a_known_series_is_found(likeness: float) -> None:
    bins = np.arange(4000)
    found = [
        dependence.correlation_time(bins, 4000, autoregressive(4000, likeness, seed))
        for seed in range(20)
    ]
    assert np.mean(found) == pytest.approx((1 + likeness) / (1 - likeness), rel=0.15)


def test_what_is_all_alike_has_no_correlation() -> None:
    assert dependence.correlation_time(np.arange(10), 10, np.full(10, 0.4)) is None
    assert dependence.of_percentile(np.arange(10.0), np.full(10, 0.4), 95) == 1.0
    assert dependence.of_percentile(np.zeros(1), np.ones(1), 95) == 1.0
    assert dependence.of_percentile(np.arange(9.0), np.full(9, np.inf), 95) == 1.0


def test_independent_requests_count_for_nearly_all() -> None:
    rng = np.random.default_rng(1)
    due = np.arange(2000) / 10
    found = [dependence.of_percentile(due, rng.exponential(size=2000), 95) for _ in range(30)]
    assert 1 <= np.median(found) < 1.3


def test_requests_that_wait_for_one_another_count_for_few() -> None:
    """M/M/1 at load 0.8: 6,000 requests are worth some hundred."""
    worth = [
        len(due) / dependence.of_percentile(due, latency, 95)
        for due, latency in runs(Queue("M", 0.8, 50, 120), 30, seed=1)
    ]
    assert 40 < np.median(worth) < 250


def test_an_interval_covers_the_truth_where_one_for_independent_requests_does_not() -> None:
    queue = Queue("M", 0.8, 50, 120)
    truth = true_percentile(queue, 95)
    covered, naive = 0, 0
    for due, latency in runs(queue, 100, seed=3):
        of = sample(due, latency)
        inflation = dependence.of_percentile(due, latency, 95)
        low, high = percentile_interval(of, 95, 0.95, inflation)
        covered += (low or 0) <= truth <= (high or np.inf)
        low, high = percentile_interval(of, 95, 0.95, 1.0)
        naive += (low or 0) <= truth <= (high or np.inf)
    assert covered >= 80  # nominally 90
    assert naive < 50


@given(st.floats(0.01, 100), st.integers(0, 50))
def test_a_factor_on_all_latencies_changes_nothing(factor: float, seed: int) -> None:
    values = np.exp(autoregressive(300, 0.7, seed))
    due = np.arange(300) / 5
    before = dependence.of_percentile(due, values, 95)
    assert dependence.of_percentile(due, factor * values, 95) == pytest.approx(before, rel=1e-6)


def test_a_few_failures_do_not_drown_the_likeness_of_the_others() -> None:
    values = np.exp(autoregressive(600, 0.9, 2))
    due = np.arange(600) / 5
    failing = values.copy()
    failing[::60] = np.inf
    before, after = (dependence.of_percentile(due, v, 95) for v in (values, failing))
    assert after > 0.7 * before


def test_failures_in_a_cluster_count_for_fewer_than_scattered_ones() -> None:
    due, slow = np.arange(600) / 5, np.random.default_rng(1).exponential(size=600)
    scattered, cluster = np.zeros(600, bool), np.zeros(600, bool)
    scattered[::30] = True
    cluster[200:220] = True
    apart, together = (dependence.of_share(due, bad, slow) for bad in (scattered, cluster))
    assert apart < 2 < 5 < together
    assert decide_share(20, 20, 600, 0.055, 0.95, inflation=apart).outcome is Result.PASS
    assert decide_share(20, 20, 600, 0.055, 0.95, inflation=together).outcome is Result.INCONCLUSIVE


def test_without_failures_the_slowest_requests_tell_whether_they_would_cluster() -> None:
    due, none = np.arange(600) / 5, np.zeros(600, bool)
    rng = np.random.default_rng(1)
    calm = rng.exponential(size=600)
    waves = calm + 5 * (np.sin(np.arange(600) / 60) > 0.9)
    assert dependence.of_share(due, none, calm) < 1.6
    assert dependence.of_share(due, none, waves) > 4


def test_a_limit_far_beyond_the_spread_is_met_by_few_effective_requests() -> None:
    """300 requests of some 40 ms that drift: worth a handful, and far under 900 ms."""
    values = 0.04 * np.exp(0.1 * autoregressive(300, 0.9, 4))
    of = sample(np.arange(300) / 20, values)
    near, far = (decide_percentile(of, 95, limit, 0.95) for limit in (0.06, 0.9))
    assert near.requests / near.inflation < 59
    assert (near.outcome, far.outcome, far.far) == (Result.INCONCLUSIVE, Result.PASS, True)
    assert far.high is not None
    assert values.max() < far.high < 0.9


@pytest.mark.parametrize(
    ("limit_s", "heaviest", "outcome"),
    [
        (0.25, 1.0, Result.PASS),
        (0.25, 30.0, Result.INCONCLUSIVE),
        (0.004, 1.0, Result.INCONCLUSIVE),
    ],
)
def test_gaps_far_under_their_limit_are_met_by_few_effective_requests(
    limit_s: float, heaviest: float, outcome: Result
) -> None:
    """300 requests of 20 gaps of some 3 ms, 6 at most, that drift: 0.25 s is far beyond them.

    It is not where one request has 30 times as many gaps as others: a few can have 5 % of all.
    """
    level = 0.003 * np.exp(0.1 * autoregressive(300, 0.9, 4))
    gaps = np.sort(np.outer(level, np.exp(np.linspace(-0.3, 0.3, 20))).ravel())
    due_s, largest = np.arange(300) / 20, level * np.exp(0.3)
    of = Sample(gaps, gaps, np.arange(1, 6001), due_s, level, largest, heaviest)
    decision = decide_percentile(of, 95, limit_s, 0.95)
    assert decision.requests / decision.inflation < 59
    assert (decision.outcome, decision.far) == (outcome, outcome is Result.PASS)
    assert decision.high is None or decision.high >= largest.max()


def test_one_failure_takes_the_bound_by_spread_away() -> None:
    values = np.full(300, 0.04)
    values[3] = np.inf
    assert far_limit.upper_bound_s(values, 95, 0.95, 1.0) == np.inf
    assert far_limit.upper_bound_s(values[4:], 95, 0.95, 200.0) == np.inf  # worth too few
    assert far_limit.upper_bound_s(values[4:], 95, 0.95, 10.0) == pytest.approx(0.04)


def test_bursts_that_few_requests_met_are_not_beyond_the_spread() -> None:
    """Of 1,200 requests 24 fell into bursts and took 20 times as long: the P95 may well be there.

    Their spread alone would say that a percentile is far below them.
    """
    rng = np.random.default_rng(1)
    values = 0.04 * np.exp(0.1 * rng.normal(size=1200))
    values[300:312] *= 20
    values[900:912] *= 20
    assert far_limit.upper_bound_s(values, 95, 0.95, 12.0) == values.max()
    decision = decide_percentile(sample(np.arange(1200) / 20, values), 95, 0.5, 0.95)
    assert decision.outcome is Result.INCONCLUSIVE
