"""When did a nightly series change its level, and by how much? E-divisive, as Hunter and Otava do.

A series is split where the energy distance between its two sides is largest (Matteson and James,
2014); the split stands if Student's t says that it is no chance and the change is not small, and
its sides are split further. As in Hunter (Fleming et al., 2023), the t-test replaces permutations:
it is as good on latencies and gives the same answer each night.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from slo.latencies import Floats

FLOOR = 0.03  # a smaller change of level is not told
P_VALUE = 0.001
WINDOW = 60  # nights that are looked at together: an old level says nothing of today's
FEWEST = 2  # nights on each side


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """From the night with this index on, the level is another one. `change` is a share."""

    index: int
    before: float
    after: float
    change: float
    p_value: float


def change_points(
    series: Sequence[float], *, floor: float = FLOOR, p_value: float = P_VALUE
) -> list[ChangePoint]:
    """All changes of level, oldest first; values are above 0, so that changes are ratios."""
    values = np.log(np.asarray(series, dtype=np.float64))
    found: set[int] = set()
    # Windows overlap by half, so that a change near the edge of one is inside another.
    for start in range(0, max(1, len(values) - WINDOW // 2), WINDOW // 2):
        part = values[start : start + WINDOW]
        found |= {start + index for index in _splits(part, 0, p_value)}
    return _standing(values, sorted(found), floor, p_value)


def _splits(values: Floats, offset: int, p_value: float) -> Iterator[int]:
    index = _best_split(values)
    if index is None or _p_value(values[:index], values[index:]) > p_value:
        return
    yield from _splits(values[:index], offset, p_value)
    yield offset + index
    yield from _splits(values[index:], offset + index, p_value)


def _best_split(values: Floats) -> int | None:
    """Where the energy distance of the two sides, weighted by their sizes, is largest."""
    n = len(values)
    if n < 2 * FEWEST:
        return None
    apart = np.abs(values[:, None] - values[None, :])
    inside = np.cumsum(np.cumsum(apart, axis=0), axis=1)
    sizes = np.arange(FEWEST, n - FEWEST + 1)
    left = inside[sizes - 1, sizes - 1]
    across = inside[sizes - 1, n - 1] - left
    right = inside[n - 1, n - 1] - 2 * across - left
    others = n - sizes
    energy = 2 * across / (sizes * others) - left / sizes**2 - right / others**2
    return int(sizes[np.argmax(energy * sizes * others / n)])


def _p_value(before: Floats, after: Floats) -> float:
    """Two-sided, of Student's t with one variance for both sides."""
    freedom = len(before) + len(after) - 2
    spread = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    difference = abs(float(after.mean() - before.mean()))
    if spread <= 0.0:
        return 0.0 if difference else 1.0
    error = math.sqrt(spread / freedom * (1 / len(before) + 1 / len(after)))
    return float(2 * student.sf(difference / error, freedom))


def _standing(values: Floats, found: list[int], floor: float, p_value: float) -> list[ChangePoint]:
    """Those that stand between their neighbours; the weakest is dropped until all do."""
    while found:
        edges = [0, *found, len(values)]
        sides = [
            (values[max(a, b - WINDOW) : b], values[b : min(c, b + WINDOW)])
            for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        tested = [
            (_p_value(before, after), _change(before, after), before, after)
            for before, after in sides
        ]
        weak = [i for i, (p, x, _, _) in enumerate(tested) if p > p_value or abs(x) < floor]
        if not weak:
            return [
                ChangePoint(index, math.exp(before.mean()), math.exp(after.mean()), change, p)
                for index, (p, change, before, after) in zip(found, tested, strict=True)
            ]
        found.pop(max(weak, key=lambda i: (tested[i][0], -abs(tested[i][1]))))
    return []


def _change(before: Floats, after: Floats) -> float:
    return math.expm1(float(after.mean() - before.mean()))
