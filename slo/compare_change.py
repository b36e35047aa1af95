"""How much a number changed between two servers, and how far that may be chance.

Ratios are taken as logarithms, shares as differences. Three ways, by what there is:

- pairs: runs of both servers on the same schedule, side by side in time; each pair gives one
  difference, and where the order turns (ABBA) a steady drift of the machine falls out of them;
- runs: at least three of each server, not paired; their spread holds what differs run to run;
- within: fewer. A run's own interval, for which its requests count as few as they are worth, and
  an assumed drift between runs, since one run cannot show it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

FEWEST_PAIRS = 3
FEWEST_RUNS = 3
# With so many pairs, two numbers are fitted to them: the change, and what coming second costs.
FEWEST_TURNED = 6


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of one run and its interval; inf is over every limit, None is not known."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A change and its ends; None: there is none, or no end."""

    change: float | None
    low: float | None
    high: float | None


NOTHING = Interval(None, None, None)


def of_pairs(differences: Sequence[float], after_first: Sequence[bool], level: float) -> Interval:
    """Mean of the pairs' differences, with what the order costs taken out where it turns evenly."""
    d = np.array(differences)
    if len(d) < FEWEST_PAIRS:
        return NOTHING
    change, rest, free = float(d.mean()), d - d.mean(), len(d) - 1
    sign = np.where(after_first, -1.0, 1.0)
    if len(d) >= FEWEST_TURNED and sign.sum() == 0:
        rest, free = rest - sign * float((sign * d).mean()), free - 1
    error = math.sqrt(float((rest**2).sum()) / free / len(d))
    reach = float(t.ppf((1 + level) / 2, free)) * error
    return Interval(change, change - reach, change + reach)


def of_runs(before: Sequence[float], after: Sequence[float], level: float) -> Interval:
    """Difference of means over runs, by Welch's t."""
    if min(len(before), len(after)) < FEWEST_RUNS:
        return NOTHING
    change = float(np.mean(after) - np.mean(before))
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (before, after)]
    if sum(parts) == 0:
        return Interval(change, change, change)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (before, after), strict=True)
    )
    reach = float(t.ppf((1 + level) / 2, freedom)) * math.sqrt(sum(parts))
    return Interval(change, change - reach, change + reach)


def within(
    before: Sequence[Estimate], after: Sequence[Estimate], level: float, drift: float
) -> Interval:
    """Difference of means over runs from the interval of each, ends squared and added (MOVER).

    `drift` is the standard deviation that is assumed between runs of one server.
    """
    (a, a_down, a_up), (b, b_down, b_up) = (_spread(side) for side in (before, after))
    if not (math.isfinite(a) and math.isfinite(b)):
        return _beyond(before, after)
    reach = float(norm.ppf((1 + level) / 2)) * drift
    shaken = reach**2 * (1 / len(before) + 1 / len(after))
    change = b - a
    return Interval(
        change,
        _finite(change - math.sqrt(b_down**2 + a_up**2 + shaken)),
        _finite(change + math.sqrt(b_up**2 + a_down**2 + shaken)),
    )


def _beyond(before: Sequence[Estimate], after: Sequence[Estimate]) -> Interval:
    """What is known where a side lies over every limit: how far apart the near ends are."""

    def apart(high: Sequence[Estimate], low: Sequence[Estimate]) -> float | None:
        lows, highs = [one.low for one in high], [one.high for one in low]
        if None in lows or None in highs:
            return None
        return float(np.mean(lows) - np.mean(highs))  # type: ignore[arg-type]

    less = apart(before, after)
    return Interval(None, apart(after, before), None if less is None else -less)


def logarithm(estimate: Estimate) -> Estimate:
    """The same on the scale on which ratios are differences."""
    return Estimate(*(_log(end) for end in (estimate.value, estimate.low, estimate.high)))


def ratio(interval: Interval) -> Interval:
    """Back from logarithms: +0.05 for five percent more."""
    return Interval(
        *(
            None if end is None else math.expm1(min(end, 700.0))
            for end in (interval.change, interval.low, interval.high)
        )
    )


def of_shares(
    before: tuple[float, float], after: tuple[float, float], level: float
) -> tuple[Interval, tuple[Estimate, Estimate]]:
    """Difference of two shares, each given as (bad, n) of so many independent: Newcombe's."""
    sides = tuple(Estimate(bad / n, *wilson(bad, n, level)) for bad, n in (before, after))
    return within(sides[:1], sides[1:], level, 0.0), (sides[0], sides[1])


def wilson(part: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share."""
    z = float(norm.ppf((1 + level) / 2))
    share = part / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _spread(side: Sequence[Estimate]) -> tuple[float, float, float]:
    """Mean over runs, and how far below and above it its true value may lie."""
    values = [math.inf if one.value is None else one.value for one in side]
    down = up = 0.0
    for one, value in zip(side, values, strict=True):
        down += _squared(value, one.low)
        up += _squared(one.high, value)
    mean = sum(values) / len(side)
    return mean, math.sqrt(down) / len(side), math.sqrt(up) / len(side)


def _squared(high: float | None, low: float | None) -> float:
    if high is None or low is None:
        return math.inf
    return 0.0 if high == low else (high - low) ** 2


def _log(value: float | None) -> float | None:
    return None if value is None or value <= 0 else math.log(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
