"""Was the server in a steady state, and the clock a steady one? Checks of what should not move."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from slo import dependence
from slo.latencies import Floats
from slo.measurements import Measurements
from slo.quantities import show_s
from slo.resources import GPU_METRICS
from slo.rows import line
from slo.rundir import Run
from slo.validity import ALL, noted, passed, unchecked, voided
from slo.verdict import Check, Result, Row

_FIRST = 0.2  # of the window, compared with the rest of it
_FEWEST = 30
_FEWEST_S = 30.0
# So rarely does a steady queue look as if it were none, at each end.
_CHANCE = 1e-4
_MATTERS = 0.1  # as a logarithm: a tenth slower or faster


@dataclass(frozen=True, slots=True)
class Trend:
    """How latencies of the window's first part differ from the rest: factor, and its chance."""

    factor: float
    chance: float
    first_s: float


def trend(measured: Measurements) -> Trend | None:
    """Compare the first part of the window with the rest; None where there is too little of it."""
    start, end = measured.window_s
    sample = measured.sample("e2e")
    first = sample.due_s < start + _FIRST * (end - start)
    if end - start < _FEWEST_S or min(first.sum(), (~first).sum()) < _FEWEST:
        return None
    logs = dependence.logarithms(sample.typical)
    # Estimated from the rest: a trend would else hide in what it adds to the likeness.
    inflation = dependence.of_percentile(sample.due_s[~first], sample.typical[~first], 50)
    difference = float(logs[first].mean() - logs[~first].mean())
    parts = (logs[first], logs[~first])
    error = math.sqrt(sum(_variance(part) * inflation / len(part) for part in parts))
    worth = max(float(first.sum()) / inflation, 1.0)  # few of these make an uncertain error
    chance = (
        float(student.sf(abs(difference) / error, worth))
        if error > 0
        else float(abs(difference) < 1e-9)
    )
    return Trend(math.exp(difference), chance, _FIRST * (end - start))


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1))


def warm(found: Trend | None, rows: Sequence[Row], metrics: Sequence[str]) -> Check:
    """Whether the warm-up was over when the measured window began.

    Where the first requests were slower, what is met stands; where they were faster, latency still
    rose, and what is missed stands.
    """
    limit = "no trend from the first fifth to the rest"
    if found is None:
        why = f"A window under {_FEWEST_S:g} s, or too few requests, shows no trend."
        return unchecked("warm-up", limit, why)
    shown = f"{found.factor:.2f} x"
    if found.chance > _CHANCE or abs(math.log(found.factor)) < _MATTERS:
        return passed("warm-up", shown, limit, "The first requests were as fast as the others.")
    slower = found.factor > 1
    stands = Result.PASS if slower else Result.FAIL
    turned = tuple(line(row) for row in rows if row.metric in metrics and row.outcome is not stands)
    why = f"E2E was {shown} of the rest in the first {show_s(found.first_s)}: "
    why += "the warm-up was not over." if slower else "latency still rose."
    if not turned:
        return noted("warm-up", shown, limit, why)
    return voided("warm-up", shown, limit, f"{why} Use a longer --warmup.", turned)


def clock(run: Run, stamps: Floats, limit_s: float) -> Check:
    """Whether the wall clock was set in mid-run. `stamps` are wall minus monotonic times, in s.

    Latencies of one process are measured by the monotonic clock, which nobody sets; what is joined
    over hosts and with the GPU's samples rests on the wall clock.
    """
    limit = f"<= {show_s(limit_s)}"
    if not len(stamps):
        return unchecked("clock", limit, "No sampler ran that saw both clocks of this machine.")
    start = (run.t0_wall_ns - run.t0_mono_ns) / 1e9
    steps = np.abs(np.diff(np.concatenate(([start], stamps))))
    step = float(steps.max())
    if step <= limit_s:
        return passed("clock", show_s(step), limit, "The wall clock was not set in mid-run.")
    why = f"The wall clock was set by {show_s(step)} in mid-run."
    return voided("clock", show_s(step), limit, why, ALL if len(run.workers) > 1 else GPU_METRICS)
