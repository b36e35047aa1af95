"""The small drawing beside an objective: measured value and interval against the limit."""

from dataclasses import dataclass

from slo.quantities import show
from slo.verdict import Row

# Half the axis as a share of the limit: the limit stands in the middle, so that it lines up from
# row to row, and the axis is the narrowest of these that holds the whole interval.
_SPANS = (0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Places on an axis from 0 (left) to 100 (right), where 50 is the limit.

    `beyond` says that something lies off the right end. None: there is no such mark.
    """

    dot: float | None
    low: float | None
    high: float | None
    beyond: bool
    left: str  # what the left end stands for
    right: str
    at_least: bool  # the limit is a minimum: the right half is the good one


def draw(row: Row) -> Drawing | None:
    """Where the marks of one objective go; None where nothing was measured."""
    known = [value for value in (row.measured, row.low, row.high) if value is not None]
    censored = row.measured is None and row.censored is not None
    if not known and not censored:
        return None
    span = _span(known, row.limit_value)
    start, end = row.limit_value - span, row.limit_value + span

    def place(value: float | None) -> float | None:
        return None if value is None else min(max(100 * (value - start) / (end - start), 0), 100)

    return Drawing(
        dot=None if row.measured is not None and row.measured > end else place(row.measured),
        low=place(row.low),
        # Failures have no upper end: the whisker runs off the axis.
        high=100.0 if row.high is None and censored else place(row.high),
        beyond=censored or any(value > end for value in known),
        left=_end(start, row.unit) if row.limit_value > 0 else "",
        right=_end(end, row.unit),
        at_least=row.limit.lstrip().startswith(">"),
    )


def _end(value: float, unit: str) -> str:
    return show(value, unit) if value else "0"


def _span(known: list[float], limit: float) -> float:
    farthest = max((abs(value - limit) for value in known), default=0.0)
    if limit <= 0:
        return 1.25 * farthest or 1.0
    return limit * next((share for share in _SPANS if 1.1 * farthest <= share * limit), _SPANS[-1])
