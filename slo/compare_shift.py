"""How the whole distribution moved: at each percentile of before, how far after lies from it.

The shift function of Doksum, with the simultaneous band of Doksum and Sievers (1976): with the
stated confidence the true shift lies inside it at all percentiles at once. It rests on the largest
difference of two distribution functions, so that it assumes no shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slo import dependence
from slo.latencies import Floats
from slo.measurements import Measurements

PERCENTILES = tuple(range(2, 99, 2))


@dataclass(frozen=True, slots=True)
class Shift:
    """One metric's shift function, as after/before - 1 at each percentile; None: no such value."""

    metric: str
    percentiles: tuple[int, ...]
    before_s: tuple[float | None, ...]
    shift: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


def shift_of(
    metric: str, before: Sequence[Measurements], after: Sequence[Measurements], level: float
) -> Shift | None:
    """The shift function of all runs of a side taken together; None without values."""
    (x, worth_x), (y, worth_y) = (_pooled(metric, side) for side in (before, after))
    if not len(x) or not len(y):
        return None
    reach = math.sqrt(-math.log((1 - level) / 2) / 2) * math.sqrt(1 / worth_x + 1 / worth_y)
    shares = [p / 100 for p in PERCENTILES]
    base = [_quantile(x, share) for share in shares]

    def against(offset: float) -> tuple[float | None, ...]:
        ends = [_quantile(y, share + offset) for share in shares]
        return tuple(
            None if end is None or at is None or not at else end / at - 1
            for end, at in zip(ends, base, strict=True)
        )

    low, high = against(-reach), against(reach)
    return Shift(metric, PERCENTILES, tuple(base), against(0.0), low, high)


def _pooled(metric: str, side: Sequence[Measurements]) -> tuple[Floats, float]:
    """All judged values in order, failures inf, and how many independent ones they are worth."""
    values, worth = [np.empty(0)], 0.0
    for measured in side:
        sample = measured.sample(metric)
        if len(sample.due_s):
            inflation = dependence.of_percentile(sample.due_s, sample.typical, 50.0)
            worth += len(sample.due_s) / inflation
        values.append(sample.at_most)
    return np.sort(np.concatenate(values)), worth


def _quantile(ordered: Floats, share: float) -> float | None:
    if not 0 < share < 1:
        return None
    value = float(ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1])
    return value if math.isfinite(value) else None
