"""Small sums over columns of numbers in which nan is "not measured"."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import theilslopes

from slo.latencies import Floats, Mask

_BINS = 120


@dataclass(frozen=True, slots=True)
class Growth:
    """How a level rose over a stretch, by the median of slopes, as a share of where it began."""

    seconds: float
    start: float
    share: float  # over the whole stretch
    late_share: float  # over its second half


def growth(at_s: Floats, values: Floats) -> Growth | None:
    """How a level rose; None without ten values."""
    known = np.isfinite(values)
    at, level = at_s[known], values[known]
    if len(level) < 10 or at[-1] <= at[0]:
        return None
    groups = np.array_split(np.arange(len(level)), min(_BINS, len(level)))
    at = np.array([np.median(at[group]) for group in groups])
    level = np.array([np.median(level[group]) for group in groups])
    seconds, half = float(at[-1] - at[0]), len(level) // 2
    start = float(np.median(level[: max(1, len(level) // 10)]))
    if start <= 0 or half < 2:
        return None
    whole = float(theilslopes(level, at)[0]) * seconds / start
    late = float(theilslopes(level[half:], at[half:])[0]) * (at[-1] - at[half]) / start
    return Growth(seconds, start, whole, float(late))


def column(items: Sequence[object], name: str) -> Floats:
    """One attribute of all items."""
    values = (getattr(one, name) for one in items)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def overlaps(begin: Floats, end: Floats, window_s: tuple[float, float]) -> Floats:
    """Seconds of each stretch inside the window; nan where it has no begin or end."""
    start, stop = window_s
    inside: Floats = np.maximum(np.minimum(end, stop) - np.maximum(begin, start), 0.0)
    return inside


def union_s(begin: Floats, end: Floats, window_s: tuple[float, float]) -> float:
    """Seconds of the window in which at least one stretch lies."""
    known: Mask = np.isfinite(begin) & np.isfinite(end)
    begin, end = np.clip(begin[known], *window_s), np.clip(end[known], *window_s)
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order]) if len(end) else end
    if not len(begin):
        return 0.0
    before = np.concatenate(([-np.inf], end[:-1]))
    return float((end - np.maximum(begin, before)).clip(0).sum())


def mean(values: Floats) -> float | None:
    """Mean of what is known."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def percentile(values: Floats, percent: float) -> float | None:
    """Percentile of what is known."""
    known = values[np.isfinite(values)]
    return float(np.percentile(known, percent)) if len(known) else None


def share_of(part: Floats, whole: Floats) -> float | None:
    """Sum of the parts over sum of the wholes, where both are known."""
    known = np.isfinite(part) & np.isfinite(whole)
    total = float(whole[known].sum())
    return float(part[known].sum()) / total if total > 0 else None


def increase(values: Floats) -> float | None:
    """How much a count rose; a fall is a restart, or the end of what a gauge showed."""
    known = values[np.isfinite(values)]
    return float(np.diff(known).clip(0).sum()) if len(known) > 1 else None


def rate(values: Floats, seconds: float) -> float | None:
    """Rise of a count per second."""
    rose = increase(values)
    return None if rose is None or seconds <= 0 else rose / seconds
