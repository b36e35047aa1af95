"""Tests of means, of growth, and of changes against a baseline: an interval beside a limit."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student
from scipy.stats import theilslopes

from slo import dependence
from slo.beside import Baseline, Beside
from slo.latencies import Floats
from slo.measurements import Measurements
from slo.objectives import LATENCIES, Objective
from slo.quantile_test import Decision, percentile_interval, undecided
from slo.resources import parts_of
from slo.series import column
from slo.verdict import Result

_BATCHES = 10
_FEWEST_SAMPLES = 20
_GROWTH_BINS = 20


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a value lies; its error is one of Student's t, which is normal without an end."""

    value: float
    low: float
    high: float
    freedom: float = math.inf  # degrees of it


def decide_tokens(objective: Objective, measured: Measurements) -> Decision:
    """Output tokens a second."""
    n = int(measured.judged(objective.scenario).sum())
    found = tokens_interval(objective, measured)
    if found is None or not n:
        return undecided(n, "The measured window is shorter than 10 s.")
    return within(objective, found, n)


def tokens_interval(objective: Objective, measured: Measurements) -> Interval | None:
    """Mean of the tokens of each second, and where it lies."""
    return mean_interval(measured.tokens_per_second(objective.scenario), objective.confidence)


def mean_interval(values: Floats, confidence: float) -> Interval | None:
    """Mean with Student's t over ten stretches, because neighbours are alike; None below ten."""
    length = len(values) // _BATCHES
    if not length:
        return None
    means = values[: length * _BATCHES].reshape(_BATCHES, length).mean(axis=1)
    mean = float(means.mean())
    reach = float(student.ppf(confidence, _BATCHES - 1) * means.std(ddof=1)) / _BATCHES**0.5
    return Interval(mean, mean - reach, mean + reach, _BATCHES - 1)


def within(objective: Objective, found: Interval, n: int) -> Decision:
    """Whether an interval lies on the right side of the limit, or on the wrong one."""
    value, low, high = found.value, found.low, found.high
    limit, upper = objective.limit, objective.bound == "max"
    met = high <= limit if upper else low >= limit
    missed = low > limit if upper else high < limit
    outcome = Result.PASS if met else Result.FAIL if missed else Result.INCONCLUSIVE
    if n < objective.min_samples:
        outcome = Result.INCONCLUSIVE
    # As likely as under the error that made the interval, on the side of the limit: where an end
    # touches the limit, the chance is what the confidence leaves.
    reach = (value - low) if upper else (high - value)
    distance = (value - limit) if upper else (limit - value)
    error = reach / float(student.ppf(max(objective.confidence, 0.501), found.freedom))
    chance = float(student.sf(distance / error, found.freedom)) if error > 0 else None
    p_missed = float(distance <= 0) if chance is None else chance
    return Decision(outcome, value, low, high, n, 0, p_missed, requests=n)


def decide_resource(objective: Objective, measured: Measurements, beside: Beside) -> Decision:
    """Mean, maximum or growth of what GPU or server sampled in the measured window."""
    resource, fold = parts_of(objective.metric)
    log = beside.gpu if objective.metric.startswith("gpu_") else beside.server
    if log.unavailable is not None:
        return undecided(0, f"Not measured: {log.unavailable}.")
    start, end = measured.window_s
    inside = [one for one in log.samples if start <= one.at_s <= end]
    at_s, values = column(inside, "at_s"), column(inside, resource.field) * resource.scale
    of = column(inside, "gpu") if objective.metric.startswith("gpu_") else np.zeros(len(inside))
    known = np.isfinite(values)
    at_s, values, of = at_s[known], values[known], of[known]
    if len(values) < _FEWEST_SAMPLES:
        why = f"{len(values)} samples of {resource.field} in the window, fewer than"
        return undecided(0, f"{why} {_FEWEST_SAMPLES}.")
    if fold == "max":
        top = float(values.max())
        decision = within(objective, Interval(top, top, top), len(values))
        return replace(decision, low=None, high=None)  # the highest that was seen, and no estimate
    by_gpu = [
        mean_interval(values[of == gpu], objective.confidence)
        if fold == "mean"
        else growth_interval(at_s[of == gpu], values[of == gpu], objective.confidence)
        for gpu in np.unique(of)
    ]
    # Idle ones beside it would hide the GPU that has most, or grew most.
    found = max(filter(None, by_gpu), key=lambda one: one.value, default=None)
    if found is None:
        return undecided(0, f"Too few samples of {resource.field} for its {fold}.")
    return within(objective, found, len(values))


def growth_interval(at_s: Floats, values: Floats, confidence: float) -> Interval | None:
    """Growth per hour as a share of the level at the start, by the median of slopes."""
    if len(values) < _GROWTH_BINS or at_s[-1] <= at_s[0]:
        return None
    groups = np.array_split(np.arange(len(values)), _GROWTH_BINS)
    at = np.array([at_s[group].mean() for group in groups])
    level = np.array([np.median(values[group]) for group in groups])
    if level[0] <= 0:
        return None
    # theilslopes gives two sides, ours is one.
    slope, _, low, high = theilslopes(level, at, 2 * confidence - 1)
    hourly = [float(one) * 3600 / float(level[0]) for one in (slope, low, high)]
    return Interval(*hourly)


def decide_change(objective: Objective, measured: Measurements, baseline: Baseline) -> Decision:
    """How much more (or less) than in the baseline run."""
    if baseline.measured is None:
        return undecided(0, f"No baseline to compare with: {baseline.why}.")
    other = _other_load(measured, baseline.measured)
    if other:
        return undecided(0, f"The baseline {baseline.name} ran under another load: {other}.")
    ours, theirs = (_interval(objective, one) for one in (measured, baseline.measured))
    n = int(measured.judged(objective.scenario).sum())
    if ours is None or theirs is None:
        which = "this run" if ours is None else f"the baseline {baseline.name}"
        return undecided(n, f"{which[:1].upper()}{which[1:]} has too few requests for an interval.")
    return within(objective, ratio(ours, theirs), n)


def ratio(ours: Interval, theirs: Interval) -> Interval:
    """The change from theirs to ours as a share, with an interval from both (MOVER, in logs)."""
    (a, a_low, a_high), (b, b_low, b_high) = (
        tuple(math.log(max(one, 1e-9)) for one in (found.value, found.low, found.high))
        for found in (ours, theirs)
    )
    low = a - b - math.hypot(a - a_low, b_high - b)
    high = a - b + math.hypot(a_high - a, b - b_low)
    freedom = min(ours.freedom, theirs.freedom)
    return Interval(math.expm1(a - b), math.expm1(low), math.expm1(high), freedom)


def _interval(objective: Objective, measured: Measurements) -> Interval | None:
    if objective.metric not in LATENCIES:
        return tokens_interval(objective, measured)
    assert objective.percentile is not None
    sample = measured.sample(objective.metric, objective.scenario)
    if not sample.n:
        return None
    inflation = dependence.of_percentile(sample.due_s, sample.typical, objective.percentile)
    low, high = percentile_interval(sample, objective.percentile, objective.confidence, inflation)
    value = sample.percentile(objective.percentile)
    return None if low is None or high is None or value is None else Interval(value, low, high)


def _other_load(measured: Measurements, baseline: Measurements) -> str:
    ours, theirs = measured.run, baseline.run
    if not math.isclose(ours.rate_per_s, theirs.rate_per_s, rel_tol=0.001):
        return f"{theirs.rate_per_s:g}/s, not {ours.rate_per_s:g}/s"
    if ours.arrival != theirs.arrival:
        return f"{theirs.arrival} arrivals, not {ours.arrival} ones"
    if ours.mix != theirs.mix:
        return "another mix"
    limits = [run.sampling.get("max_tokens") for run in (ours, theirs)]
    if limits[0] != limits[1]:
        return f"max_tokens {limits[1]}, not {limits[0]}"
    return ""
