"""Which rate to probe next, and for how long; or why to stop. Pure: a function of the probes.

First short probes, doubling the rate until one looks missed, then halving that bracket. From there
on the fit says for each rate how likely a longer probe proves something, and what that would win.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slo.capacity import Bounds, Evidence, Probe, bounds, pooled, usable
from slo.capacity_fit import Fit, fits, per_request
from slo.verdict import Result

_SHORT = 0.025  # of the budget: a probe that only looks
_LONG = 0.3  # of what is left: a probe that is to prove something
_AHEAD = 1.0  # of what is left: what decides the rate of such a probe
_COARSE = 1.4  # a bracket that the fit may start from
_STEP = 2.0
_LOOKING = 0.4  # of the budget: the rest is kept for proving something
_MOST_INVALID = 3
_FAIL_WEIGHT = 0.05  # the lowest FAIL is worth less than the highest PASS
_FIRST = 1.0  # what any PASS is worth more, as long as there is none
_FEWEST = 100.0  # requests: with less, nothing can be proven of a P95
_CANDIDATES = 24

Ends = Literal["resolution", "budget", "range", "nothing passes", "not measurable"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a search may do. `budget_requests` and `budget_s` both bind; warm-up is paid too."""

    low: float
    high: float
    resolution: float = 0.05
    budget_s: float = math.inf
    budget_requests: float = math.inf
    shortest_s: float = 10.0  # a probe
    settle_s: float = 5.0  # of warm-up at least: as long as the slowest request may take
    warmup: float = 0.1  # of a probe's measured window
    start: float | None = None  # the first rate; else `low`
    whole: bool = False  # rates are numbers of users, whole ones; then requests follow from probes


@dataclass(frozen=True, slots=True)
class Ask:
    """The next probe; `duration_s` is its measured window, without warm-up."""

    rate: float
    duration_s: float
    warmup_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the search ends."""

    reason: Ends
    why: str


def next_step(probes: Sequence[Probe], limits: Limits) -> Ask | Stop:
    """What to do after these probes."""
    known = usable(probes)
    ceiling = _ceiling(probes, limits)
    if ceiling is None:
        last = next(probe for probe in reversed(probes) if probe.result is Result.INVALID)
        return Stop("not measurable", f"{_MOST_INVALID} probes were INVALID: {last.why}")
    found = bounds(probes)
    if found.passes and found.fails and found.fails <= found.passes * (1 + limits.resolution):
        return Stop("resolution", f"the two ends are within {limits.resolution:.3g}")
    coarse = _coarse(known, limits, ceiling, _spent(probes, limits) > _LOOKING)
    if isinstance(coarse, Stop):
        return coarse
    if isinstance(coarse, float):
        return _ask(coarse, _SHORT, probes, limits, "to find where it breaks")
    return _fine(known, probes, found, coarse, limits)


def _coarse(
    known: Sequence[Probe], limits: Limits, ceiling: float, enough: bool
) -> float | tuple[float, float] | Stop:
    """The rate of the next short probe, or a bracket that is narrow enough."""
    if not known:
        return min(limits.start or limits.low, ceiling)
    missed = [rate for rate in {p.rate for p in known} if not _met_at(known, rate)]
    top = min(missed, default=None)
    met = [probe.rate for probe in known if top is None or probe.rate < top]
    low = max(met, default=None)
    if low is None:
        assert top is not None
        if top <= limits.low:
            if bounds(known).fails == top:
                return Stop("nothing passes", f"even {top:.4g}/s fails")
            return top
        return max(limits.low, top / _STEP)
    if top is None:
        if enough or low >= ceiling * (1 - 1e-9):
            return (low, min(ceiling, low * _STEP))
        return min(ceiling, low * _STEP)
    if top / low > _COARSE and not enough:
        return math.sqrt(low * top)
    return (low, top)


def _met_at(known: Sequence[Probe], rate: float) -> bool:
    at = [probe for probe in known if probe.rate == rate]
    if any(probe.fails for probe in at):
        return False
    names = dict.fromkeys(one.objective for probe in at for one in probe.evidence)
    sums = [pooled(at, name) for name in names]
    return all(one.over <= one.allowed * one.worth for one in sums)


def _ceiling(probes: Sequence[Probe], limits: Limits) -> float | None:
    """The highest rate to ask: below one that was INVALID again and again. None: nothing is left.

    Such a rate is no bound: the answer does not name it, and the interval stays open.
    """
    spoilt = [probe.rate for probe in probes if probe.result is Result.INVALID]
    often = [rate for rate in spoilt if spoilt.count(rate) >= _MOST_INVALID]
    if not often:
        return limits.high
    below = [probe.rate for probe in usable(probes) if probe.rate < min(often)]
    return math.sqrt(max(below) * min(often)) if below else None


def _fine(
    known: Sequence[Probe],
    probes: Sequence[Probe],
    found: Bounds,
    bracket: tuple[float, float],
    limits: Limits,
) -> Ask | Stop:
    models = fits(known, *bracket)
    middle = math.exp(min(model.log_capacity for model in models)) if models else bracket[1]
    lowest = found.passes or max(limits.low, bracket[0] / _STEP)
    highest = found.fails or bracket[1] * _COARSE
    # What all of the rest could prove decides the rate, though only a part of it is spent at once:
    # a first guess that is too low would win soon, and be of no use to what comes after.
    duration = _seconds(middle, _AHEAD, probes, limits)
    best, rate = 0.0, None
    for candidate in np.geomspace(lowest, min(highest, limits.high), _CANDIDATES):
        requests = duration * _per_second(known, float(candidate), limits)
        passes, fails = (
            _chance(models, known, float(candidate), requests, middle, goal)
            for goal in (Result.PASS, Result.FAIL)
        )
        won = passes * (math.log(candidate / lowest) + (_FIRST if found.passes is None else 0.0))
        score = max(won, _FAIL_WEIGHT * fails * math.log(highest / candidate))
        if score > best:
            best, rate = score, float(candidate)
    if rate is None:
        return Stop("range", "no rate is left to ask")
    return _ask(rate, _LONG, probes, limits, "to prove it")


def _chance(
    models: Sequence[Fit],
    known: Sequence[Probe],
    rate: float,
    requests: float,
    middle: float,
    goal: Result,
) -> float:
    """How likely a probe at this rate proves PASS of all objectives, or FAIL of one."""
    chances = []
    for model in models:
        worth = requests * per_request(known, model.objective, rate)
        if goal is Result.PASS:
            near = [p for p in known if rate <= p.rate <= max(middle, rate)]
            chances.append(model.pass_chance(math.log(rate), _held(near, model), worth))
        else:
            near = [p for p in known if min(middle, rate) <= p.rate <= rate]
            chances.append(model.fail_chance(math.log(rate), _held(near, model), worth))
    return math.prod(chances) if goal is Result.PASS else max(chances, default=0.0)


def _held(near: Sequence[Probe], model: Fit) -> Evidence | None:
    near = [probe for probe in near if probe.evidence]
    return pooled(near, model.objective) if near else None


def _per_second(known: Sequence[Probe], rate: float, limits: Limits) -> float:
    """Requests a second: the rate, or what so many users send, as in the probe nearest to it."""
    if not limits.whole:
        return rate
    if not known:
        return math.inf
    nearest = min(known, key=lambda probe: abs(math.log(probe.rate / rate)))
    return nearest.requests / nearest.spent_s * rate / nearest.rate


def _ask(rate: float, part: float, probes: Sequence[Probe], limits: Limits, why: str) -> Ask | Stop:
    rate = max(1.0, float(round(rate))) if limits.whole else rate
    duration = _seconds(rate, part, probes, limits)
    warmup = max(limits.settle_s, duration * limits.warmup)
    if duration + warmup > _left(rate, probes, limits) + 1e-9:
        return Stop("budget", "the budget is used up")
    return Ask(rate, duration, warmup, why)


def _spent(probes: Sequence[Probe], limits: Limits) -> float:
    """Which share of the budget is gone."""
    seconds = sum(probe.spent_s for probe in probes) / limits.budget_s
    return max(seconds, sum(probe.requests for probe in probes) / limits.budget_requests)


def _left(rate: float, probes: Sequence[Probe], limits: Limits) -> float:
    """Seconds that the budget still has for a probe at this rate."""
    seconds = limits.budget_s - sum(probe.spent_s for probe in probes)
    requests = limits.budget_requests - sum(probe.requests for probe in probes)
    return min(seconds, requests / rate)


def _seconds(rate: float, part: float, probes: Sequence[Probe], limits: Limits) -> float:
    """How long a probe measures: a part of the budget, or of what is left of it."""
    whole = min(limits.budget_s, limits.budget_requests / rate)
    left = _left(rate, probes, limits)
    least = max(limits.shortest_s, _FEWEST / _per_second(usable(probes), rate, limits))
    short = max(least, _SHORT * whole)
    if part == _SHORT:
        return short
    paid = part * left if part * left > 2 * (short + limits.settle_s) else left
    return max(least, min(paid - limits.settle_s, paid / (1 + limits.warmup)))
