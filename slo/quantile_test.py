"""Is a share proven to be met, proven to be missed, or neither? Exact binomial tests, one-sided.

"P95 <= 420 ms" says that at most 5 % of requests take longer: a share. Of n requests, k over the
limit prove it met when the upper Clopper-Pearson bound of the share is at most 5 %, and missed
when the lower bound is above 5 %. The interval of the percentile is the same test turned round.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from slo.histograms import percentile_rank
from slo.verdict import Result

_MOST_REQUESTS = 10**9


@dataclass(frozen=True, slots=True)
class Sample:
    """Judged values of one metric in seconds, in ascending order; inf is over every limit.

    `at_least` and `at_most` differ where a value is known only between two bounds: a request that
    was cancelled when the run was stopped, a gap inside a histogram's bucket. `cumulative[i]` is
    how many values the first i + 1 entries stand for; `due_per_second` counts requests by second.
    """

    at_least: NDArray[np.float64]
    at_most: NDArray[np.float64]
    cumulative: NDArray[np.int64]
    due_per_second: NDArray[np.int64]

    @property
    def n(self) -> int:
        """How many values there are."""
        return int(self.cumulative[-1]) if len(self.cumulative) else 0

    def over(self, values: NDArray[np.float64], limit: float) -> int:
        """How many of `at_least` or `at_most` are over a limit."""
        within = int(np.searchsorted(values, limit, side="right"))
        return self.n - (int(self.cumulative[within - 1]) if within else 0)

    def at_rank(self, values: NDArray[np.float64], rank: int) -> float | None:
        """The value of that rank, counted from 1; None for inf."""
        value = float(values[np.searchsorted(self.cumulative, rank)])
        return value if math.isfinite(value) else None

    def percentile(self, percentile: float) -> float | None:
        """The value of rank ceil(p*N), never flattered; None among failures or without values."""
        rank = percentile_rank(self.n, percentile)
        return self.at_rank(self.at_most, rank) if self.n else None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """So few over a limit prove it met, so many prove it missed; `meets` is -1 where none do."""

    meets: int
    misses: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What the requests prove of one objective, before several are seen together (`holm`).

    `over` of `n` values were over the limit at most; they are worth `independent` requests.
    `p_missed` is the chance of so many if the limit is met; `more` is how many further requests
    would decide at the share seen, None if none would.
    """

    outcome: Result
    measured: float | None
    low: float | None
    high: float | None
    n: int
    over: int
    independent: int
    p_missed: float
    more: int | None


def independent_requests(due_per_second: NDArray[np.int64]) -> int:
    """How many independent requests those of a run are worth, from their counts by second.

    All of them, as if none had waited behind another: under load that is too many, and intervals
    are too narrow. The interval for dependent requests belongs here.
    """
    return int(due_per_second.sum())


def thresholds(n: int, allowed: float, confidence: float) -> Thresholds:
    """The two ends of the exact test that a share is at most `allowed`, of n requests."""
    alpha = 1 - confidence
    below = int(binom.ppf(alpha, n, allowed))
    meets = below if binom.cdf(below, n, allowed) <= alpha else below - 1
    return Thresholds(meets if n else -1, int(binom.isf(alpha, n, allowed)) + 1)


def decide_percentile(
    sample: Sample, percentile: float, limit_s: float, confidence: float, min_samples: int = 0
) -> Decision:
    """Test that a percentile is at most a limit, and give the interval in which it lies."""
    allowed = 1 - percentile / 100
    independent = independent_requests(sample.due_per_second)
    if not sample.n or not independent:
        return _nothing(allowed, confidence, min_samples)
    ends = thresholds(independent, allowed, confidence)
    scale = sample.n / independent  # above 1 for gaps: those of one request are no new evidence
    certain = sample.over(sample.at_least, limit_s) / scale
    possible = sample.over(sample.at_most, limit_s) / scale
    high_rank = sample.n - math.floor(ends.meets * scale)
    low_rank = sample.n - math.ceil(ends.misses * scale) + 1
    return Decision(
        outcome=_outcome(certain, possible, ends, independent, min_samples),
        measured=sample.percentile(percentile),
        low=sample.at_rank(sample.at_least, low_rank) if low_rank >= 1 else None,
        high=sample.at_rank(sample.at_most, high_rank) if ends.meets >= 0 else None,
        n=sample.n,
        over=sample.over(sample.at_most, limit_s),
        independent=independent,
        p_missed=float(binom.sf(math.floor(certain) - 1, independent, allowed)),
        more=more_requests(possible, independent, allowed, confidence, min_samples),
    )


def decide_share(
    certain: int, possible: int, n: int, allowed: float, confidence: float, min_samples: int = 0
) -> Decision:
    """Test that a share is at most `allowed`, where `certain` to `possible` of n count against."""
    if not n:
        return _nothing(allowed, confidence, min_samples)
    ends = thresholds(n, allowed, confidence)
    return Decision(
        outcome=_outcome(certain, possible, ends, n, min_samples),
        measured=possible / n,
        low=float(beta.ppf(1 - confidence, certain, n - certain + 1)) if certain else 0.0,
        high=float(beta.ppf(confidence, possible + 1, n - possible)) if possible < n else 1.0,
        n=n,
        over=possible,
        independent=n,
        p_missed=float(binom.sf(certain - 1, n, allowed)),
        more=more_requests(possible, n, allowed, confidence, min_samples),
    )


def _outcome(certain: float, possible: float, ends: Thresholds, n: int, min_samples: int) -> Result:
    if n < min_samples:
        return Result.INCONCLUSIVE
    if possible <= ends.meets:
        return Result.PASS
    return Result.FAIL if certain >= ends.misses else Result.INCONCLUSIVE


def _nothing(allowed: float, confidence: float, min_samples: int) -> Decision:
    more = more_requests(0, 0, allowed, confidence, min_samples)
    return Decision(Result.INCONCLUSIVE, None, None, None, 0, 0, 0, 1.0, more)


def more_requests(
    over: float, n: int, allowed: float, confidence: float, min_samples: int = 0
) -> int | None:
    """How many further requests would decide if the share over the limit stayed as it is.

    None where it lies on the limit, or so near that 1e9 requests would not tell.
    """
    seen = over / n if n else 0.0

    def decides(total: int) -> bool:
        ends = thresholds(total, allowed, confidence)
        if seen < allowed:
            return math.ceil(seen * total) <= ends.meets
        return seen > allowed and math.floor(seen * total) >= ends.misses

    enough = _smallest(decides, max(n, 1))
    return None if enough is None else max(enough, min_samples) - n


def _smallest(decides: Callable[[int], bool], start: int) -> int | None:
    low, high = start - 1, start
    while not decides(high):
        low, high = high, high * 2
        if high > _MOST_REQUESTS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def holm(p_values: Sequence[float], alphas: Sequence[float]) -> list[bool]:
    """Which of several misses stand when they are seen together: Holm's step-down test.

    Each has its own error level; the smallest p/alpha must be within 1/m, the next 1/(m-1), ...
    """
    ratios = [p / alpha for p, alpha in zip(p_values, alphas, strict=True)]
    stands = [False] * len(ratios)
    for place, which in enumerate(sorted(range(len(ratios)), key=ratios.__getitem__)):
        if ratios[which] > 1 / (len(ratios) - place):
            break
        stands[which] = True
    return stands
