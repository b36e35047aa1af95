"""One comparison of a measured number with a threshold, in three values and in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slo.thresholds import Limits


@dataclass(frozen=True, slots=True)
class Condition:
    """`holds` is None where the number was not measured; `near` where it could fall either way."""

    holds: bool | None
    text: str
    near: bool = False
    estimated: bool = False


def at_least(
    name: str,
    value: float | None,
    limit: float,
    limits: Limits,
    *,
    unit: str = "",
    estimated: bool = False,
) -> Condition:
    """Whether a number reaches a limit."""
    return _compared(name, value, limit, limits, unit, estimated, low=False)


def below(
    name: str,
    value: float | None,
    limit: float,
    limits: Limits,
    *,
    unit: str = "",
    estimated: bool = False,
) -> Condition:
    """Whether a number stays under a limit."""
    return _compared(name, value, limit, limits, unit, estimated, low=True)


def every(conditions: Sequence[Condition]) -> Condition:
    """All of them; unknown where one is unknown and none fails."""
    failed = [one for one in conditions if one.holds is False]
    if failed:
        return _joined(failed, False, near=all(one.near for one in failed))
    holds = None if any(one.holds is None for one in conditions) else True
    return _joined(conditions, holds, near=any(one.near for one in conditions))


def some(conditions: Sequence[Condition]) -> Condition:
    """One of them; unknown where one is unknown and none holds."""
    true = [one for one in conditions if one.holds]
    if true:
        joined = _joined(true, True, near=all(one.near for one in true))
        return replace(joined, estimated=all(one.estimated for one in true))
    holds = None if any(one.holds is None for one in conditions) else False
    return _joined(conditions, holds, near=any(one.near for one in conditions))


def number(value: float) -> str:
    """Three digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def _compared(
    name: str,
    value: float | None,
    limit: float,
    limits: Limits,
    unit: str,
    estimated: bool,
    *,
    low: bool,
) -> Condition:
    sign = "<" if low else ">="
    space = "" if unit in ("", "x") else " "
    asked = f"{sign} {number(limit)}{space}{unit}"
    if value is None:
        return Condition(None, f"{name} not measured ({asked})")
    holds = value < limit if low else value >= limit
    near = abs(value - limit) <= limits["near"] * abs(limit)
    about = "about " if estimated else ""
    return Condition(
        holds, f"{name} {about}{number(value)}{space}{unit} ({asked})", near, estimated
    )


def _joined(told: Sequence[Condition], holds: bool | None, *, near: bool) -> Condition:
    text = ", ".join(one.text for one in told)
    return Condition(holds, text, near, any(one.estimated for one in told))
