"""How often a comparison of two equal servers finds a change, and how small a change is found.

    make bench-compare            SEED=n another draw, QUICK=1 a tenth of the work

A server is one queue, first come first served, at load 0.6: Poisson arrivals at 10 a second, work
log-normal around 60 ms. Both servers of a pair get the same arrivals and the same work, and each
has noise of its own on top. The machine gets 3 % slower from run to run, as it warms up. A true
change lengthens all latencies alike, so that it is known exactly. The last line is JSON.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from slo.compare_change import Interval, logarithm, of_pairs, of_runs, within
from slo.compare_values import percentile_of
from slo.sample import Sample

SEED = int(os.environ.get("SEED", "1"))
QUICK = os.environ.get("QUICK") == "1"
TRIALS = 200 if QUICK else 2000
RATE_PER_S, WORK_S, CV, NOISE, WARMUP_S = 10.0, 0.06, 0.5, 0.1, 5.0
DRIFT, LEVEL = 0.03, 0.95
PAIRS, RUNS = 8, 4
DURATIONS_S = (15.0, 30.0, 60.0, 120.0)
CHANGES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
POWER = 0.8

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, float, float], Interval]


def schedule(rng: np.random.Generator, duration_s: float) -> tuple[Floats, Floats]:
    """When requests are due, and their work in seconds."""
    count = int((duration_s + WARMUP_S) * RATE_PER_S * 1.6 + 50)
    due = np.cumsum(rng.exponential(1 / RATE_PER_S, count))
    due = due[due < duration_s + WARMUP_S]
    return due, lognormal(rng, len(due), CV) * WORK_S


def lognormal(rng: np.random.Generator, count: int, cv: float) -> Floats:
    """Numbers around 1 with a coefficient of variation."""
    sigma = sqrt(log(1 + cv**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, count)


def run(rng: np.random.Generator, plan: tuple[Floats, Floats], pace: float) -> Sample:
    """The judged latencies of one run on a machine that is slower by a factor."""
    due, work = plan
    spent = work * lognormal(rng, len(work), NOISE) * pace
    before = np.concatenate(([0.0], np.cumsum(spent)[:-1]))
    latency = np.maximum.accumulate(due - before) + before + spent - due
    judged = due >= WARMUP_S
    due, latency = due[judged], latency[judged]
    ordered = np.sort(latency)
    return Sample(ordered, ordered, np.arange(1, len(ordered) + 1), due, latency)


def slower(place: int) -> float:
    """The machine's pace in the run at that place of the sequence."""
    return 1 + DRIFT * place


def p95_log(sample: Sample) -> float:
    """What most gates look at."""
    value = sample.percentile(95)
    assert value is not None
    return log(value)


def typical_log(sample: Sample) -> float:
    """The geometric mean: in a pair, by what the same request changed."""
    return float(np.log(sample.typical).mean())


def abba(pairs: int) -> Iterator[tuple[bool, int, int]]:
    """Whether after comes first, and the places of before and after, pair by pair."""
    for pair in range(pairs):
        turned = pair % 2 == 1
        yield turned, 2 * pair + turned, 2 * pair + (not turned)


def by_pairs(
    rng: np.random.Generator,
    duration_s: float,
    true_log: float,
    statistic: Callable[[Sample], float] = p95_log,
) -> Interval:
    """`slo ab`: pairs in the order ABBA, each on a schedule of its own."""
    differences, turned = [], []
    for after_first, before_at, after_at in abba(PAIRS):
        plan = schedule(rng, duration_s)
        a, b = (statistic(run(rng, plan, slower(place))) for place in (before_at, after_at))
        differences.append(b - a + true_log)
        turned.append(after_first)
    return of_pairs(differences, turned, LEVEL)


def by_runs(rng: np.random.Generator, duration_s: float, true_log: float) -> Interval:
    """Runs in the same order, every one on another schedule."""
    sides: tuple[list[float], list[float]] = [], []
    for _, before_at, after_at in abba(RUNS):
        for side, place in zip(sides, (before_at, after_at), strict=True):
            side.append(p95_log(run(rng, schedule(rng, duration_s), slower(place))))
    return of_runs(sides[0], [one + true_log for one in sides[1]], LEVEL)


def one_each(rng: np.random.Generator, duration_s: float, true_log: float) -> Interval:
    """One run of each, one after the other, as long together as the pairs."""
    plan = schedule(rng, duration_s * PAIRS)
    a, b = (percentile_of(run(rng, plan, slower(place)), 95, LEVEL) for place in (0, 1))
    found = within([logarithm(a)], [logarithm(b)], LEVEL, DRIFT)
    low, high = (None if end is None else end + true_log for end in (found.low, found.high))
    return Interval((found.change or 0.0) + true_log, low, high)


WAYS: dict[str, Draw] = {
    f"ab, {PAIRS} pairs: P95": by_pairs,
    f"ab, {PAIRS} pairs: gmean": partial(by_pairs, statistic=typical_log),
    f"{RUNS} + {RUNS} runs: P95": by_runs,
    "1 + 1 runs: P95": one_each,
}


def found(interval: Interval) -> bool:
    """Whether it says that there is a change."""
    return (interval.low or 0.0) > 0 or (interval.high or 0.0) < 0


def smallest_change(intervals: Sequence[Interval]) -> float | None:
    """The smallest of CHANGES that is found with 80 % power; the draws are those of no change."""
    for change in CHANGES:
        moved = log(1 + change)
        hits = [(one.low if one.low is not None else -9) + moved > 0 for one in intervals]
        if np.mean(hits) >= POWER:
            return change
    return None


def main() -> None:
    """Print the table, and its gist as JSON."""
    began = time.perf_counter()
    alarms: dict[str, list[float]] = {}
    mde: dict[str, float | None] = {}
    print(f"{'way':26} {'block':>6} {'A/A alarms':>11} {'half width':>11} {'found (80 %)':>13}")
    for name, draw in WAYS.items():
        for duration_s in DURATIONS_S:
            rng = np.random.default_rng([SEED, int(duration_s), len(name)])
            intervals = [draw(rng, duration_s, 0.0) for _ in range(TRIALS)]
            alarm = 100 * float(np.mean([found(one) for one in intervals]))
            widths = [((one.high or 9) - (one.low or -9)) / 2 for one in intervals]
            width, least = 100 * float(np.median(widths)), smallest_change(intervals)
            shown = "-" if least is None else f"{100 * least:.0f} %"
            print(f"{name:26} {duration_s:4.0f} s {alarm:9.1f} % {width:9.1f} % {shown:>13}")
            alarms.setdefault(name, []).append(alarm / 100)
            if name.startswith("ab"):
                mde[f"{name.split(': ')[1]}, {duration_s:.0f}s"] = least
    gist = {
        "aa_alarm": round(max(float(np.mean(each)) for each in alarms.values()), 4),
        "aa_worst_cell": max(max(each) for each in alarms.values()),
        "mde": mde,
        "trials": TRIALS,
        "seed": SEED,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(gist))


if __name__ == "__main__":
    main()
