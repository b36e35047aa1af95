"""One line a number: before, after, the change and what can be said of it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slo.compare_answers import Answers, Grades
from slo.compare_change import (
    FEWEST_PAIRS,
    FEWEST_RUNS,
    NOTHING,
    Estimate,
    Interval,
    logarithm,
    of_pairs,
    of_runs,
    of_shares,
    ratio,
    within,
)
from slo.compare_contract import schedule_digest
from slo.compare_values import OF_SERVER, Key, Observed, better_of, estimates, failures, unit_of

UNSURE = "~"
METHODS = {
    "pairs": "t interval over pairs of runs on the same schedule",
    "runs": "Welch's t interval over runs",
    "within": "interval within each run, and the assumed drift between runs",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one scenario; None is over every limit (before, after) or unknown.

    `change` is after/before - 1 where `relative`, else after - before. `outcome` is worse, better,
    changed (where neither is better), ~ (it may be chance) or - (no interval). `more` is how many
    times as much load would tell the allowed change apart; None: this is enough.
    """

    metric: str
    scenario: str
    unit: str
    before: float | None
    after: float | None
    change: float | None
    low: float | None
    high: float | None
    relative: bool
    outcome: str
    more: float | None


@dataclass(frozen=True, slots=True)
class Sides:
    """The runs to compare, and how."""

    before: Sequence[Observed]
    after: Sequence[Observed]
    method: str
    pairs: Sequence[tuple[int, int]]  # indices of before and after
    drift: float

    @property
    def side_by_side(self) -> bool:
        """Whether no other run lies between the two of any pair."""
        order = sorted(
            [(seen.run.t0_wall_ns, "b", i) for i, seen in enumerate(self.before)]
            + [(seen.run.t0_wall_ns, "a", i) for i, seen in enumerate(self.after)]
        )
        place = {(side, i): at for at, (_, side, i) in enumerate(order)}
        return all(abs(place["b", i] - place["a", j]) == 1 for i, j in self.pairs)


def sides_of(before: Sequence[Observed], after: Sequence[Observed], drift: float) -> Sides:
    """Pair the runs by their schedule where each has its one partner."""
    left, right = ([schedule_digest(seen) for seen in side] for side in (before, after))
    one_each = len(set(left)) == len(left) and sorted(left) == sorted(right)
    if one_each and len(left) >= FEWEST_PAIRS:
        return Sides(
            before, after, "pairs", [(i, right.index(d)) for i, d in enumerate(left)], drift
        )
    enough = min(len(left), len(right)) >= FEWEST_RUNS
    return Sides(before, after, "runs" if enough else "within", (), drift)


def lines(
    sides: Sides, answers: Answers | None, allowed: Callable[[str], float], level: float
) -> Iterator[Line]:
    """Every number that both sides have."""
    tables = [[estimates(seen, level) for seen in side] for side in (sides.before, sides.after)]
    keys = [key for key in tables[0][0] if all(key in t for side in tables for t in side)]
    for key in keys:
        before, after = ([table[key] for table in side] for side in tables)
        yield _line(sides, key, before, after, allowed(key[0]), level)
    for scenario in dict.fromkeys(scenario for _, scenario in keys):
        yield _errors(sides, scenario, allowed("error_rate"), level)
    if answers is not None:
        for left, right in zip(answers.before, answers.after, strict=True):
            yield from _answers(left, right, answers, allowed, level)


def _line(
    sides: Sides,
    key: Key,
    before: Sequence[Estimate],
    after: Sequence[Estimate],
    allowed: float,
    level: float,
) -> Line:
    metric, scenario = key
    relative = unit_of(metric) != "1"
    if relative:
        before, after = ([logarithm(one) for one in side] for side in (before, after))
    if metric in OF_SERVER:
        before, after = before[:1], after[:1]
        known = all(one.low is not None for one in (*before, *after))
        found = within(before, after, level, 0.0) if known else NOTHING
    else:
        found = _interval(sides, before, after, level, sides.drift if relative else 0.0)
    shown = [_mean(side, relative) for side in (before, after)]
    change = ratio(found) if relative else found
    if change.change is None and None not in shown:
        change = Interval(_plain_change(shown[0], shown[1], relative), None, None)
    return line(metric, scenario, (shown[0], shown[1]), change, allowed, relative=relative)


def _interval(
    sides: Sides, before: Sequence[Estimate], after: Sequence[Estimate], level: float, drift: float
) -> Interval:
    values = [[one.value for one in side] for side in (before, after)]
    finite = [[v for v in side if v is not None and math.isfinite(v)] for side in values]
    whole = [len(side) for side in finite] == [len(before), len(after)]
    if sides.method == "pairs" and whole:
        differences = [finite[1][j] - finite[0][i] for i, j in sides.pairs]
        first = [
            sides.after[j].run.t0_wall_ns < sides.before[i].run.t0_wall_ns for i, j in sides.pairs
        ]
        return of_pairs(differences, first, level)
    if sides.method == "runs" and whole:
        return of_runs(finite[0], finite[1], level)
    if any(
        one.value is None or (one.low is None and one.high is None) for one in (*before, *after)
    ):
        return NOTHING
    return within(before, after, level, drift)


def line(
    metric: str,
    scenario: str,
    shown: tuple[float | None, float | None],
    change: Interval,
    allowed: float,
    *,
    relative: bool,
) -> Line:
    """A line with its outcome."""
    more = None
    if change.low is not None and change.high is not None and allowed > 0:
        reach = (change.high - change.low) / 2
        more = (reach / allowed) ** 2 if reach > allowed else None
    return Line(
        metric=metric,
        scenario=scenario,
        unit=unit_of(metric),
        before=shown[0],
        after=shown[1],
        change=change.change,
        low=change.low,
        high=change.high,
        relative=relative,
        outcome=outcome(change, better_of(metric)),
        more=more,
    )


def outcome(change: Interval, better: int) -> str:
    """What the interval says: its side of no change, or that it is on both."""
    if change.low is None and change.high is None:
        return "-"
    rose = change.low is not None and change.low > 0
    fell = change.high is not None and change.high < 0
    if not rose and not fell:
        return UNSURE
    if better == 0:
        return "changed"
    return "better" if rose == (better > 0) else "worse"


def _errors(sides: Sides, scenario: str, allowed: float, level: float) -> Line:
    """Pooled over runs: a t interval over shares that are mostly 0 would be of no width."""
    pooled = []
    plain = []
    for side in (sides.before, sides.after):
        found = [failures(seen, scenario) for seen in side]
        pooled.append((sum(bad / by for bad, _, by in found), sum(n / by for _, n, by in found)))
        plain.append(sum(bad for bad, _, _ in found) / max(sum(n for _, n, _ in found), 1.0))
    if not all(n for _, n in pooled):
        return line("error_rate", scenario, (None, None), NOTHING, allowed, relative=False)
    change, _ = of_shares(pooled[0], pooled[1], level)
    change = Interval(plain[1] - plain[0], change.low, change.high)
    return line("error_rate", scenario, (plain[0], plain[1]), change, allowed, relative=False)


def _answers(
    before: Grades,
    after: Grades,
    answers: Answers,
    allowed: Callable[[str], float],
    level: float,
) -> Iterator[Line]:
    scenario, pairs = before.scenario, answers.pairs.get(before.scenario)
    for metric, left, right in (
        ("accuracy", before.right, after.right),
        ("truncated", before.truncated, after.truncated),
    ):
        if not left.n or not right.n:
            continue
        change, _ = of_shares((left.part, left.n), (right.part, right.n), level)
        if metric == "accuracy" and pairs is not None:
            change = Interval(right.value - left.value, pairs.low, pairs.high)
        shown = (left.value, right.value)
        yield line(metric, scenario, shown, change, allowed(metric), relative=False)
    if before.good.n and after.good.n:
        ends = [
            logarithm(Estimate(one.good.value, one.good.low, one.good.high))
            for one in (before, after)
        ]
        known = all(end.value is not None for end in ends)
        change = ratio(within(ends[:1], ends[1:], level, 0.0)) if known else NOTHING
        shown = (before.good_per_s, after.good_per_s)
        yield line(
            "correct_goodput", scenario, shown, change, allowed("correct_goodput"), relative=True
        )


def _mean(side: Sequence[Estimate], relative: bool) -> float | None:
    """Over runs; of ratios the geometric one."""
    values = [one.value for one in side if one.value is not None]
    if not values or not all(map(math.isfinite, values)):
        return None
    mean = sum(values) / len(values)
    return math.exp(mean) if relative else mean


def _plain_change(before: float | None, after: float | None, relative: bool) -> float | None:
    if before is None or after is None or (relative and before == 0):
        return None
    return after / before - 1 if relative else after - before
