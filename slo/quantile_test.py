"""Is a share proven to be met, proven to be missed, or neither? Binomial tests, one-sided.

"P95 <= 420 ms" says that at most 5 % of requests take longer: a share. Of n requests, k over the
limit prove it met when the upper Clopper-Pearson bound of the share is at most 5 %, and missed
when the lower bound is above 5 %. The interval of the percentile is the same test turned round.
Requests that are not independent count for fewer: n and k are divided by their inflation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincinv

from slo import dependence, far_limit
from slo.sample import Sample
from slo.verdict import Result

_MOST_REQUESTS = 10**9
_FEWEST = 10


@dataclass(frozen=True, slots=True)
class Thresholds:
    """So few over a limit prove it met, so many prove it missed; `meets` is -1 where none do."""

    meets: int
    misses: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What the requests prove of one objective, before several are seen together (`holm`).

    `over` of `n` values were over the limit at most; they come from `requests` requests, of which
    `inflation` are worth one independent one. `p_missed` is the chance of so many if the limit is
    met; `more` is how many further requests would decide at the share seen, None if none would.
    `nothing` says in words why nothing was measured; `far` that a limit is met because it lies far
    beyond the spread of the values; `backlog` that the server fell behind all through the run: then
    a miss is counted as it is, since a longer run would only be slower.
    """

    outcome: Result
    measured: float | None
    low: float | None
    high: float | None
    n: int
    over: int
    p_missed: float
    more: int | None = None
    requests: int = 0
    inflation: float = 1.0
    nothing: str | None = None
    far: bool = False
    backlog: bool = False


def undecided(n: int = 0, nothing: str | None = None) -> Decision:
    """A decision that says nothing."""
    return Decision(Result.INCONCLUSIVE, None, None, None, n, 0, 1.0, requests=n, nothing=nothing)


def meets(over: float, n: float, allowed: float, confidence: float) -> bool:
    """Whether `over` of n independent requests prove that the share is at most `allowed`.

    Fewer than ten never do: an estimate of so few is too uncertain itself.
    """
    proven = over < n and float(betainc(over + 1, n - over, allowed)) >= confidence
    return proven and n >= _FEWEST


def chance(over: float, n: float, allowed: float) -> float:
    """How likely `over` or more of n independent requests are if the share is `allowed`."""
    if over <= 0 or allowed >= 1:
        return 1.0
    return float(betainc(over, max(n - over, 0.0) + 1, allowed))


def thresholds(n: int, allowed: float, confidence: float, inflation: float = 1.0) -> Thresholds:
    """The two ends of the test that a share is at most `allowed`, of n requests."""
    worth, alpha = n / inflation, 1 - confidence
    met = _smallest_in(n, lambda k: not meets(k / inflation, worth, allowed, confidence)) - 1
    return Thresholds(
        met, _smallest_in(n, lambda k: chance(k / inflation, worth, allowed) <= alpha)
    )


def _smallest_in(n: int, holds: Callable[[int], bool]) -> int:
    """The smallest of 0 to n for which it holds, n + 1 if for none; it then holds for all above."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def decide_percentile(
    sample: Sample, percentile: float, limit_s: float, confidence: float, min_samples: int = 0
) -> Decision:
    """Test that a percentile is at most a limit, and give the interval in which it lies."""
    allowed, requests = 1 - percentile / 100, len(sample.due_s)
    if not sample.n or not requests:
        return _nothing(allowed, confidence, min_samples)
    inflation = dependence.of_percentile(sample.due_s, sample.typical, percentile)
    # Above 1 for gaps: those of one request are no new evidence.
    scale = sample.n / requests
    certain = sample.over(sample.at_least, limit_s) / scale
    possible = sample.over(sample.at_most, limit_s) / scale
    low, high = percentile_interval(sample, percentile, confidence, inflation)
    miss_inflation = 1.0 if sample.backlog else inflation
    outcome = _outcome(
        certain, possible, requests, allowed, confidence, min_samples, inflation, miss_inflation
    )
    far = outcome is Result.INCONCLUSIVE and high is not None and high <= limit_s
    if far and requests >= min_samples:
        outcome = Result.PASS
    return Decision(
        outcome=outcome,
        measured=sample.percentile(percentile),
        low=low,
        high=high,
        n=sample.n,
        over=sample.over(sample.at_most, limit_s),
        p_missed=chance(certain / miss_inflation, requests / miss_inflation, allowed),
        more=more_requests(possible, requests, allowed, confidence, min_samples, inflation),
        requests=requests,
        inflation=inflation,
        far=far,
        backlog=sample.backlog,
    )


def percentile_interval(
    sample: Sample, percentile: float, confidence: float, inflation: float
) -> tuple[float | None, float | None]:
    """The ends between which a percentile lies, each with that confidence; None: without end.

    The upper one is that of the effective requests; or what their spread bounds, where all of them
    were enough if they were independent.
    """
    low_rank, high_rank = _ranks(sample, percentile, confidence, inflation)
    low = sample.at_rank(sample.at_least, low_rank) if low_rank >= 1 else None
    high = sample.at_rank(sample.at_most, high_rank) if high_rank <= sample.n else None
    if np.isfinite(sample.at_most[-1]):
        bound_s = _bound_by_spread(sample, percentile, confidence, inflation)
        _, all_rank = _ranks(sample, percentile, confidence, 1.0)
        if math.isfinite(bound_s) and all_rank <= sample.n:
            high = bound_s if high is None else min(high, bound_s)
    return low, high


def _bound_by_spread(
    sample: Sample, percentile: float, confidence: float, inflation: float
) -> float:
    """What `far_limit` says; of gaps, what it says of each request's largest.

    Gaps over a limit lie in requests whose largest one is. If so many of the gaps were over it, at
    least that share of the requests was, less where some have more gaps than others.
    """
    if sample.largest is None:
        return far_limit.upper_bound_s(sample.typical, percentile, confidence, inflation)
    of_requests = 100 - (100 - percentile) / sample.heaviest
    own = dependence.of_percentile(sample.due_s, sample.largest, of_requests)
    return far_limit.upper_bound_s(sample.largest, of_requests, confidence, max(own, inflation))


def _ranks(
    sample: Sample, percentile: float, confidence: float, inflation: float
) -> tuple[int, int]:
    """Ranks of the ends; below 1 and above n where there is none."""
    requests = len(sample.due_s)
    ends = thresholds(requests, 1 - percentile / 100, confidence, inflation)
    scale = sample.n / requests
    low = sample.n - math.ceil(ends.misses * scale) + 1
    return low, sample.n + 1 if ends.meets < 0 else sample.n - math.floor(ends.meets * scale)


def decide_share(
    certain: int,
    possible: int,
    n: int,
    allowed: float,
    confidence: float,
    min_samples: int = 0,
    inflation: float = 1.0,
) -> Decision:
    """Test that a share is at most `allowed`, where `certain` to `possible` of n count against."""
    if not n:
        return _nothing(allowed, confidence, min_samples)
    worth, few, many = n / inflation, certain / inflation, possible / inflation
    low = float(betaincinv(few, worth - few + 1, 1 - confidence)) if certain else 0.0
    high = float(betaincinv(many + 1, worth - many, confidence)) if possible < n else 1.0
    return Decision(
        outcome=_outcome(
            certain, possible, n, allowed, confidence, min_samples, inflation, inflation
        ),
        measured=possible / n,
        low=low,
        high=high,
        n=n,
        over=possible,
        p_missed=chance(few, worth, allowed),
        more=more_requests(possible, n, allowed, confidence, min_samples, inflation),
        requests=n,
        inflation=inflation,
    )


def _outcome(
    certain: float,
    possible: float,
    n: int,
    allowed: float,
    confidence: float,
    min_samples: int,
    inflation: float,
    miss_inflation: float,
) -> Result:
    if n < min_samples:
        return Result.INCONCLUSIVE
    if meets(possible / inflation, n / inflation, allowed, confidence):
        return Result.PASS
    missed = chance(certain / miss_inflation, n / miss_inflation, allowed) <= 1 - confidence
    return Result.FAIL if missed else Result.INCONCLUSIVE


def _nothing(allowed: float, confidence: float, min_samples: int) -> Decision:
    more = more_requests(0, 0, allowed, confidence, min_samples)
    return Decision(Result.INCONCLUSIVE, None, None, None, 0, 0, 1.0, more)


def more_requests(
    over: float,
    n: int,
    allowed: float,
    confidence: float,
    min_samples: int = 0,
    inflation: float = 1.0,
) -> int | None:
    """How many further requests would decide if share and inflation stayed as they are.

    None where the share lies on the limit, or so near that 1e9 requests would not tell.
    """
    seen = over / n if n else 0.0

    def decides(total: int) -> bool:
        worth = total / inflation
        if seen < allowed:
            return meets(math.ceil(seen * total) / inflation, worth, allowed, confidence)
        many = math.floor(seen * total) / inflation
        return seen > allowed and chance(many, worth, allowed) <= 1 - confidence

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
