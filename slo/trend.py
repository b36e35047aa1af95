"""What the nights on record say: which metric changed its level, in which night, beside what."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slo.change_points import FLOOR, ChangePoint, change_points
from slo.fingerprint import changed
from slo.history import Night

# Metrics of which more is better; of all others less is.
_MORE = ("capacity", "tokens_per_s")
RECENT = 14  # nights; an older change was told before


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one target: the nights that have it, and where its level changed."""

    target: str
    metric: str
    nights: tuple[Night, ...]
    points: tuple[ChangePoint, ...]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(night.values[self.metric] for night in self.nights)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level: its night, its size, and what else changed since the night before."""

    target: str
    metric: str
    day: str
    before: float
    after: float
    change: float
    worse: bool
    recent: bool
    beside: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """E.g. "prod: e2e.p50 got 5.1 % worse on 2026-11-02 (0.812 -> 0.853); ..."."""
        way = "worse" if self.worse else "better"
        beside = "; ".join(self.beside) or "nothing in the environment that is recorded"
        return (
            f"{self.target}: {self.metric} got {100 * abs(self.change):.1f} % {way} on {self.day}"
            f" ({self.before:.4g} -> {self.after:.4g}); changed that night: {beside}"
        )


def series_of(nights: Sequence[Night], *, floor: float = FLOOR) -> list[Series]:
    """Every series in the nights, with its changes."""
    found = []
    for target in sorted({night.target for night in nights}):
        own = [night for night in nights if night.target == target and night.status == "measured"]
        for metric in sorted({name for night in own for name in night.values}):
            with_it = tuple(n for n in own if _usable(n.values.get(metric)))
            values = [night.values[metric] for night in with_it]
            points = tuple(change_points(values, floor=floor))
            found.append(Series(target, metric, with_it, points))
    return found


def changes(series: Sequence[Series], *, recent: int = RECENT) -> list[Change]:
    """All changes in them, the newest first."""
    found = [change for one in series for change in _of(one, recent)]
    return sorted(found, key=lambda change: (change.day, change.worse), reverse=True)


def regressed(found: Sequence[Change]) -> bool:
    """Whether something got worse lately."""
    return any(change.worse and change.recent for change in found)


def _of(series: Series, recent: int) -> Iterator[Change]:
    for point in series.points:
        night, before = series.nights[point.index], series.nights[point.index - 1]
        more_is_better = series.metric in _MORE
        yield Change(
            series.target,
            series.metric,
            night.day,
            point.before,
            point.after,
            point.change,
            worse=(point.change < 0) == more_is_better,
            recent=len(series.nights) - point.index <= recent,
            beside=tuple(changed(before.fingerprint, night.fingerprint)),
        )


def _usable(value: float | None) -> bool:
    return value is not None and value > 0 and math.isfinite(value)
