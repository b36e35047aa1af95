"""Whether the answers got worse: accuracy, the same prompts side by side, and against load."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.stats import binomtest, norm

from slo.compare_change import wilson
from slo.compare_contract import schedule_digest
from slo.compare_values import Observed
from slo.grade import Verdict
from slo.latencies import Floats, Mask, spans
from slo.measurements import ALL

BINS = 4
POWER = 0.8


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, with Wilson's interval."""

    part: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share."""
        return self.part / self.n


@dataclass(frozen=True, slots=True)
class Grades:
    """The graded answers of one side in one scenario: of the requests that completed."""

    scenario: str
    right: Share
    truncated: Share
    wrong: int
    no_answer: int
    good_per_s: float  # right and in time, a second of the window
    offered_per_s: float
    good: Share  # of all judged requests


@dataclass(frozen=True, slots=True)
class LoadBin:
    """Accuracy of the answers that were sent while so many requests were open."""

    open_from: int
    open_to: int
    before: Share | None
    after: Share | None


@dataclass(frozen=True, slots=True)
class Pairs:
    """The same prompts answered by both: McNemar's exact test.

    `smallest` is the loss of accuracy that so many pairs would have shown with 80 % power.
    """

    n: int
    lost: int  # right before, not after
    won: int
    p: float
    change: float
    low: float
    high: float
    smallest: float


@dataclass(frozen=True, slots=True)
class Answers:
    """Both sides' answers."""

    before: tuple[Grades, ...]
    after: tuple[Grades, ...]
    pairs: Mapping[str, Pairs]  # by scenario; empty where no prompt was answered by both
    by_load: tuple[LoadBin, ...]
    in_time: Mapping[str, float]  # limits in seconds, by metric


def answers_of(
    before: Sequence[Observed],
    after: Sequence[Observed],
    in_time: Mapping[str, float],
    level: float,
) -> Answers | None:
    """All that the grades say; None where a side is not graded throughout."""
    if not all(seen.grades for seen in (*before, *after)):
        return None
    names = sorted({name for seen in (*before, *after) for name in seen.measured.scenarios})
    scenarios = (ALL, *names) if len(names) > 1 else (ALL,)
    paired = {name: _pairs(before, after, name, level) for name in scenarios}
    return Answers(
        before=tuple(_grades(before, name, in_time, level) for name in scenarios),
        after=tuple(_grades(after, name, in_time, level) for name in scenarios),
        pairs={name: found for name, found in paired.items() if found is not None},
        by_load=tuple(_by_load(before, after, level)),
        in_time=in_time,
    )


def share(part: int, n: int, level: float) -> Share:
    """A share with its interval; of nothing, anything is possible."""
    low, high = wilson(part, n, level) if n else (0.0, 1.0)
    return Share(part, n, low, high)


def _grades(
    side: Sequence[Observed], scenario: str, in_time: Mapping[str, float], level: float
) -> Grades:
    counts = dict.fromkeys(Verdict, 0)
    good = judged = 0
    seconds = 0.0
    for seen in side:
        mask = seen.measured.judged(scenario)
        done = mask & seen.measured.columns.completed
        for verdict in Verdict:
            counts[verdict] += int((done & _graded(seen, verdict)).sum())
        right = done & _graded(seen, Verdict.RIGHT) & _in_time(seen, in_time)
        good, judged = good + int(right.sum()), judged + int(mask.sum())
        start, end = seen.measured.window_s
        seconds += end - start
    completed = sum(counts.values())
    return Grades(
        scenario=scenario,
        right=share(counts[Verdict.RIGHT], completed, level),
        truncated=share(counts[Verdict.TRUNCATED], completed, level),
        wrong=counts[Verdict.WRONG],
        no_answer=counts[Verdict.NO_ANSWER],
        good_per_s=good / max(seconds, 1e-9),
        offered_per_s=judged / max(seconds, 1e-9),
        good=share(good, judged, level),
    )


def _graded(seen: Observed, verdict: Verdict) -> Mask:
    numbers = seen.measured.columns.numbers["seq"]
    seqs = [seq for seq, grade in seen.grades.items() if grade.grade is verdict]
    found: Mask = np.isin(numbers, seqs)
    return found


def _in_time(seen: Observed, limits: Mapping[str, float]) -> Mask:
    within: Mask = seen.measured.columns.completed.copy()
    for metric, limit_s in limits.items():
        within &= spans(seen.measured.columns, metric) <= limit_s
    return within


def _pairs(
    before: Sequence[Observed], after: Sequence[Observed], scenario: str, level: float
) -> Pairs | None:
    """Each prompt once: the first run of a schedule on either side."""
    sides = [{schedule_digest(seen): seen for seen in reversed(side)} for side in (before, after)]
    both = lost = won = 0
    for digest in sides[0].keys() & sides[1].keys():
        left, right = (_completed(side[digest], scenario) for side in sides)
        for seq in left.keys() & right.keys():
            both += 1
            lost += left[seq] and not right[seq]
            won += right[seq] and not left[seq]
    if not both:
        return None
    p = float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0
    change = (won - lost) / both
    # Agresti and Min: half a pair more in each of the four cells keeps the interval honest.
    n, shifted = both + 2, (won - lost) / (both + 2)
    error = math.sqrt(max((lost + won + 1) - n * shifted**2, 0.0)) / n
    reach = float(norm.ppf((1 + level) / 2)) * error
    return Pairs(
        n=both,
        lost=int(lost),
        won=int(won),
        p=p,
        change=change,
        low=shifted - reach,
        high=shifted + reach,
        smallest=detectable((lost + won + 1) / (both + 2), both, level),
    )


def detectable(discordant: float, pairs: int, level: float) -> float:
    """The change of accuracy found with 80 % power, if such a share of pairs differs at all."""
    reach = float(norm.ppf((1 + level) / 2) + norm.ppf(POWER))
    return min(1.0, reach * math.sqrt(discordant / pairs))


def _completed(seen: Observed, scenario: str) -> dict[int, bool]:
    columns = seen.measured.columns
    seqs = columns.numbers["seq"][seen.measured.judged(scenario) & columns.completed]
    return {
        int(seq): seen.grades[int(seq)].grade is Verdict.RIGHT
        for seq in seqs
        if int(seq) in seen.grades
    }


def _by_load(
    before: Sequence[Observed], after: Sequence[Observed], level: float
) -> Iterator[LoadBin]:
    """Bins of about as many requests each, over both sides."""
    sides = [
        (np.concatenate([_open_when_sent(seen) for seen in side]), np.concatenate(
            [_graded(seen, Verdict.RIGHT)[_answered(seen)] for seen in side]))
        for side in (before, after)
    ]  # fmt: skip
    together = np.concatenate([opened for opened, _ in sides])
    if not len(together):
        return
    starts = np.unique(np.quantile(together, np.arange(BINS) / BINS, method="nearest"))
    for start, end in pairwise([*starts, together.max() + 1]):
        shares: list[Share | None] = []
        for opened, right in sides:
            inside = (opened >= start) & (opened < end)
            n = int(inside.sum())
            shares.append(share(int(right[inside].sum()), n, level) if n else None)
        yield LoadBin(int(start), int(end) - 1, shares[0], shares[1])


def _answered(seen: Observed) -> Mask:
    """The judged requests that completed and were graded."""
    known: Mask = np.isin(seen.measured.columns.numbers["seq"], list(seen.grades))
    return seen.measured.judged() & seen.measured.columns.completed & known


def _open_when_sent(seen: Observed) -> Floats:
    """Requests open, itself included, at the moment that each answered request was sent."""
    numbers = seen.measured.columns.numbers
    sent = np.sort(numbers["sent_s"][np.isfinite(numbers["sent_s"])])
    ended = np.sort(numbers["ended_s"][np.isfinite(numbers["sent_s"])])
    at = numbers["sent_s"][_answered(seen)]
    opened = np.searchsorted(sent, at, side="right") - np.searchsorted(ended, at, side="right")
    return opened.astype(np.float64)
