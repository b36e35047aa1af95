"""How often is a verdict wrong, and how often does it say nothing? `make bench-verdict`.

Queues are simulated whose true percentile is known, and each run is judged by the test that judges
real ones (`slo.quantile_test`) under three limits: the true percentile lies 2 % over the first (a
PASS is false), 2 % under the second (a FAIL is false), and 20 % under the third (a PASS is right:
the power). SEED=n draws others, QUICK=1 takes fewer runs, PUBLISH=1 writes docs/calibration.md and
slo/calibration.json.
"""

import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from slo import backlog, dependence
from slo.quantile_test import decide_percentile, decide_share, meets
from slo.sample import Sample
from slo.verdict import Result
from tests.benchmarks.queues import Queue, runs, sim_queue, true_loss, true_percentile

ROOT = Path(__file__).parent.parent.parent
CONFIDENCE = 0.95
OVER, UNDER, FAR = 1 / 1.02, 1 / 0.98, 1 / 0.8
LOADS = (0.3, 0.6, 0.8, 0.9)
SIZES = ((3, 120), (15, 120), (50, 120), (10, 600))
# Power of a test that knows the queue, of M/M/1 by load and number of requests.
ORACLE = {(0.3, 1800): 0.99, (0.6, 1800): 0.61, (0.6, 6000): 0.94, (0.8, 6000): 0.51}
WANTED_POWER = 0.6
MOST_FALSE = 0.05
# Upper ends of the classes of effective sizes in slo/calibration.json.
CLASSES = (60, 120, 250, 500, 1000, 10**9)


@dataclass(frozen=True, slots=True)
class Case:
    """One queue, judged by one percentile; 0 is the share of requests turned away."""

    queue: Queue
    percentile: float
    count: int
    seed: int


@dataclass(frozen=True, slots=True)
class Line:
    """What came of a case; all but the first two are shares of the runs."""

    case: Case
    worth: float  # median of the effective size
    false_pass: float
    false_fail: float
    power: float
    inconclusive: float  # where the truth lies 2 % over the limit
    coverage: float  # of the interval, nominally 90 %
    naive: float  # false PASS if each request counted as independent
    by_class: dict[int, tuple[int, int, int]]  # runs, false PASS, false FAIL by effective size


def cases(seed: int, *, quick: bool) -> list[Case]:
    """The longest first, so that processes end together."""
    count, sims, others = (120, 8, SIZES[2:3]) if quick else (1000, 80, SIZES[1:3])
    found = [
        Case(sim_queue(load, seconds), 95, sims, seed)
        for load in LOADS
        for seconds in ((120.0,) if quick else (120.0, 600.0))
    ]
    for rate, seconds in reversed(SIZES):
        for kind in ("LN", "D", "M"):
            found += [Case(Queue(kind, load, rate, seconds), 95, count, seed) for load in LOADS]
    for rate, seconds in others:
        for percentile in (50.0, 99.0):
            found += [
                Case(Queue("M", load, rate, seconds), percentile, count // 2, seed)
                for load in LOADS
            ]
    for load, room in ((0.6, 6), (0.8, 10)):
        for rate, seconds in SIZES[1:2] if quick else SIZES[:3]:
            found.append(Case(Queue("loss", load, rate, seconds, room), 0, count // 2, seed))
    return found


def judged(case: Case) -> Line:
    """Simulate a case's runs and judge each."""
    over = true_loss(case.queue) if not case.percentile else 0.0
    truth = over or true_percentile(case.queue, case.percentile)
    results: list[tuple[Result, Result, Result]] = []
    covered, naive, worths = 0, 0, []
    for due_s, latency in runs(case.queue, case.count, case.seed):
        if over:
            results.append(_by_share(due_s, latency, over))
            worths.append(len(due_s))
            continue
        sample = _sample(due_s, latency, case.queue.duration_s)
        decisions = [
            decide_percentile(sample, case.percentile, truth * limit, CONFIDENCE)
            for limit in (OVER, UNDER, FAR)
        ]
        first = decisions[0]
        results.append((first.outcome, decisions[1].outcome, decisions[2].outcome))
        worths.append(first.requests / first.inflation)
        naive += meets(first.over, first.n, 1 - case.percentile / 100, CONFIDENCE)
        covered += (first.low or 0) <= truth <= (first.high or math.inf)
    n = len(results)
    return Line(
        case,
        worth=float(np.median(worths)),
        false_pass=sum(r[0] is Result.PASS for r in results) / n,
        false_fail=sum(r[1] is Result.FAIL for r in results) / n,
        power=sum(r[2] is Result.PASS for r in results) / n,
        inconclusive=sum(r[0] is Result.INCONCLUSIVE for r in results) / n,
        coverage=covered / n,
        naive=naive / n,
        by_class=_by_class(worths, results),
    )


def _sample(due_s: np.ndarray, latency: np.ndarray, duration_s: float) -> Sample:
    ordered = np.sort(latency)
    grows = backlog.grows(due_s, due_s + latency, (0.0, duration_s))
    return Sample(ordered, ordered, np.arange(1, len(ordered) + 1), due_s, latency, backlog=grows)


def _by_share(due_s: np.ndarray, latency: np.ndarray, truth: float) -> tuple[Result, ...]:
    """The error rate; "20 % under" is a limit of one and a half times the truth."""
    bad = np.isinf(latency)
    inflation = dependence.of_share(due_s, bad, latency)
    k, n = int(bad.sum()), len(bad)
    return tuple(
        decide_share(k, k, n, truth * limit, CONFIDENCE, inflation=inflation).outcome
        for limit in (OVER, UNDER, 1.5)
    )


def _by_class(
    worths: Sequence[float], results: Sequence[tuple[Result, ...]]
) -> dict[int, tuple[int, int, int]]:
    found: dict[int, tuple[int, int, int]] = {}
    for worth, (over, under, _) in zip(worths, results, strict=True):
        top = next(end for end in CLASSES if worth < end)
        n, passed, failed = found.get(top, (0, 0, 0))
        found[top] = n + 1, passed + (over is Result.PASS), failed + (under is Result.FAIL)
    return found


def summary(lines: Sequence[Line]) -> dict[str, float]:
    """The goals: of P95 at loads up to 0.8."""
    asked = [a for a in lines if a.case.queue.load <= 0.8 and a.case.percentile == 95]
    shares = [
        line.power / oracle
        for line in asked
        for (load, n), oracle in ORACLE.items()
        if line.case.queue.kind == "M"
        and (line.case.queue.load, line.case.queue.expected) == (load, n)
    ]
    return {
        "false_pass_max": round(max(line.false_pass for line in asked), 4),
        "false_fail_max": round(max(line.false_fail for line in asked), 4),
        "power_share_min": round(min(shares), 3),
    }


def table(lines: Sequence[Line]) -> Iterator[str]:
    """The lines as Markdown."""
    yield "| queue | load | requests | seconds | of | worth | false PASS | false FAIL | " \
          "INCONCLUSIVE | power | coverage | naive false PASS | runs |"  # fmt: skip
    yield "|" + " --- |" * 13
    for line in lines:
        queue, percentile = line.case.queue, line.case.percentile
        of = f"P{percentile:g}" if percentile else "error rate"
        worth, coverage, naive = (
            (f"{line.worth:.0f}", f"{line.coverage:.3f}", f"{line.naive:.3f}")
            if percentile
            else ("-", "-", "-")
        )
        yield (
            f"| {queue.name} | {queue.load:g} | {queue.expected:,} | {queue.duration_s:g} | {of} | "
            f"{worth} | {line.false_pass:.3f} | {line.false_fail:.3f} | {line.inconclusive:.3f} | "
            f"{line.power:.3f} | {coverage} | {naive} | {line.case.count:,} |"
        )


def classes(lines: Sequence[Line]) -> list[dict[str, float]]:
    """Wrong verdicts of P95 by effective size, over all loads and queues."""
    found = []
    for low, high in zip((0, *CLASSES), CLASSES, strict=False):
        parts = [a.by_class.get(high, (0, 0, 0)) for a in lines if a.case.percentile == 95]
        n, passed, failed = (sum(part[i] for part in parts) for i in range(3))
        if n:
            found.append(
                {
                    "from": low,
                    "below": high,
                    "runs": n,
                    "false_pass": round(passed / n, 4),
                    "false_fail": round(failed / n, 4),
                }
            )
    return found


def main() -> int:
    seed, quick = int(os.environ.get("SEED", "1")), os.environ.get("QUICK") == "1"
    started = time.monotonic()
    with ProcessPoolExecutor() as pool:
        lines = list(pool.map(judged, cases(seed, quick=quick)))
    order = ["M", "D", "LN", "sim", "loss"]
    lines.sort(key=lambda a: (order.index(a.case.queue.kind), -a.case.percentile % 95,
                              a.case.queue.load, a.case.queue.expected))  # fmt: skip
    print("\n".join(table(lines)))
    goals = summary(lines)
    runs_each = max(line.case.count for line in lines)
    room = 1.64 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / runs_each) + 1 / runs_each
    kept = goals["false_pass_max"] <= MOST_FALSE + room and goals["power_share_min"] >= (
        WANTED_POWER - 3 * math.sqrt(0.25 / runs_each) * quick
    )
    took = time.monotonic() - started
    print(f"{'kept' if kept else 'missed'}: false PASS <= {MOST_FALSE} (+ {room:.3f} by chance), "
          f"power >= {WANTED_POWER} of an oracle's; {took:.0f} s")  # fmt: skip
    if os.environ.get("PUBLISH") == "1":
        publish(lines, goals, seed, took)
    print(json.dumps(goals))
    return 0 if kept else 1


def publish(lines: Sequence[Line], goals: dict[str, float], seed: int, took: float) -> None:
    """Write the table into docs/calibration.md, and its classes for the reports."""
    (ROOT / "slo" / "calibration.json").write_text(json.dumps(classes(lines), indent=1) + "\n")
    path = ROOT / "docs" / "calibration.md"
    head, mark, _ = path.read_text().partition("<!-- below: written by PUBLISH=1 -->")
    cpu = f"{os.cpu_count()} cores of {platform.processor() or platform.machine()}"
    said = (
        f"`SEED={seed} PUBLISH=1 make bench-verdict` on {datetime.now(UTC):%Y-%m-%d}, {cpu}, "
        f"Python {platform.python_version()}, numpy {np.__version__}, {took:.0f} s: "
        f"{json.dumps(goals)}"
    )
    by_size = ["| effective requests | runs | false PASS | false FAIL |", "|" + " --- |" * 4]
    for one in classes(lines):
        last = one["below"] == CLASSES[-1]
        size = f"{one['from']} and more" if last else f"{one['from']} to {one['below']}"
        by_size.append(
            f"| {size} | {one['runs']:,} | {one['false_pass']:.3f} | {one['false_fail']:.3f} |"
        )
    body = "\n\n".join([said, "\n".join(table(lines)), "\n".join(by_size)])
    path.write_text(f"{head}{mark}\n\n{body}\n")


if __name__ == "__main__":
    sys.exit(main())
