"""The numbers of a run that a comparison looks at, each with its interval."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from slo import dependence
from slo.compare_change import Estimate
from slo.gpu_log import GpuLog, read_gpu_log
from slo.grade import Grade, read_grades
from slo.latencies import Floats
from slo.measurements import ALL, Measurements, collect
from slo.quantile_test import percentile_interval
from slo.rundir import (
    GPU,
    GRADES,
    Run,
    read_json,
    read_records,
    read_run,
)
from slo.sample import Sample
from slo.series import column
from slo.target_info import info

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
LATENCIES = ("ttft", "ttfat", "e2e", "tpot", "itl")
CAPACITY = "capacity.json"  # what a search for the highest stable rate leaves
OF_SERVER = ("stable_qps", "cold_start")  # one number a server, however many runs it has

# A metric is "<what>.<statistic>"; its unit, and which way is better (+1: more).
Key = tuple[str, str]  # metric and scenario


@dataclass(frozen=True, slots=True)
class Observed:
    """One run, read."""

    directory: Path
    run: Run
    measured: Measurements
    gpu: GpuLog
    grades: Mapping[int, Grade]  # by seq; empty: not graded
    target: Mapping[str, Any]  # GET /info at the start
    stable_qps: Estimate | None


def observe(directory: Path) -> Observed:
    """Read a run.

    Raises:
        RunDirError: a file is missing or spoilt; names it.
    """
    run = read_run(directory)
    grades = read_grades(directory) if (directory / GRADES).exists() else ()
    gpu = read_gpu_log(directory / GPU, t0_mono_ns=run.t0_mono_ns, t0_wall_ns=run.t0_wall_ns)
    return Observed(
        directory=directory,
        run=run,
        measured=collect(read_records(directory), run),
        gpu=gpu,
        grades={one.seq: one for one in grades},
        target=info(directory),
        stable_qps=_stable_qps(directory),
    )


def unit_of(metric: str) -> str:
    """The unit of a metric: s, 1 (a share), 1/s, tokens, MiB, W, J."""
    what = metric.partition(".")[0]
    if what in (*LATENCIES, "jitter", "cold_start"):
        return "s"
    return _UNITS[what]


def better_of(metric: str) -> int:
    """+1 where more is better, -1 where less is, 0 where neither is."""
    return _BETTER.get(metric.partition(".")[0], -1)


_UNITS = {
    "error_rate": "1",
    "truncated": "1",
    "accuracy": "1",
    "correct_goodput": "1/s",
    "output_tokens": "tokens",
    "output_tokens_per_s": "1/s",
    "completed_per_s": "1/s",
    "stable_qps": "1/s",
    "gpu_util": "1",
    "gpu_dram_active": "1",
    "gpu_memory": "MiB",
    "gpu_power": "W",
    "energy_per_token": "J",
    "energy_per_request": "J",
}
_BETTER = {
    "accuracy": 1,
    "correct_goodput": 1,
    "output_tokens": 0,
    "output_tokens_per_s": 1,
    "completed_per_s": 1,
    "stable_qps": 1,
    "gpu_util": 0,
    "gpu_dram_active": 0,
}

# All that can be compared, by the names that gates have.
METRICS = (
    *(f"{one}.p{p:g}" for one in LATENCIES for p in PERCENTILES),
    *(f"{one}.{how}" for one in LATENCIES for how in ("mean", "gmean", "max")),
    *("jitter.p95-p50", "error_rate", "truncated", "accuracy", "correct_goodput"),
    *("output_tokens.mean", "output_tokens_per_s.mean", "completed_per_s.mean"),
    *(
        f"{one}.{how}"
        for one in ("gpu_util", "gpu_dram_active", "gpu_power")
        for how in ("mean", "max")
    ),
    *("gpu_memory.max", "energy_per_token.mean", "energy_per_request.mean", *OF_SERVER),
)


def estimates(seen: Observed, level: float) -> dict[Key, Estimate]:
    """All numbers of a run but its shares, with their intervals of that level."""
    found: dict[Key, Estimate] = {}
    names = seen.measured.scenarios
    for scenario in (ALL, *names) if len(names) > 1 else (ALL,):
        for metric, estimate in _of_scenario(seen.measured, scenario, level):
            found[metric, scenario] = estimate
    for metric, estimate in (*_rates(seen.measured, level), *_of_gpu(seen, level)):
        found[metric, ALL] = estimate
    if seen.stable_qps is not None:
        found["stable_qps", ALL] = seen.stable_qps
    if (took := _cold_start_s(seen.target)) is not None:
        found["cold_start", ALL] = Estimate(took)
    return {key: one for key, one in found.items() if one.value is not None}


def failures(seen: Observed, scenario: str) -> tuple[float, float, float]:
    """Failed requests, all requests, and how many are worth one independent one."""
    mask = seen.measured.judged(scenario)
    bad = mask & seen.measured.columns.failed
    return float(bad.sum()), float(mask.sum()), seen.measured.share_inflation(mask, bad)


def _of_scenario(
    measured: Measurements, scenario: str, level: float
) -> Iterator[tuple[str, Estimate]]:
    for metric in LATENCIES:
        sample = measured.sample(metric, scenario)
        if not sample.n or not len(sample.due_s):
            continue
        known = {p: percentile_of(sample, p, level) for p in PERCENTILES}
        for p, estimate in known.items():
            yield f"{metric}.p{p:g}", estimate
        counts = np.diff(sample.cumulative, prepend=0)
        finite = np.isfinite(sample.at_most)
        if finite.any():
            yield f"{metric}.mean", _mean(sample, counts * finite, level)
            yield f"{metric}.gmean", _geometric_mean(sample, level)
            yield f"{metric}.max", Estimate(float(sample.at_most[finite][-1]))
        if metric == "e2e":
            yield "jitter.p95-p50", _difference(known[95.0], known[50.0])
    good = measured.judged(scenario) & measured.columns.completed
    tokens = measured.columns.numbers["output_tokens"][good]
    if np.isfinite(tokens).any():
        yield "output_tokens.mean", _plain_mean(tokens[np.isfinite(tokens)], level)


def percentile_of(sample: Sample, p: float, level: float) -> Estimate:
    """A percentile of one run; its requests count for as few as they are worth."""
    inflation = dependence.of_percentile(sample.due_s, sample.typical, p)
    # Where its lower end falls among the failures too, it is over all that did not fail.
    top = sample.at_least[np.isfinite(sample.at_least)].max(initial=-math.inf)
    top = top if math.isfinite(top) else math.inf
    known = replace(sample, at_least=np.minimum(sample.at_least, top))
    low, high = percentile_interval(known, p, (1 + level) / 2, inflation)
    value = sample.percentile(p)
    return Estimate(math.inf if value is None else value, low, high)


def _mean(sample: Sample, counts: Floats, level: float) -> Estimate:
    """Of those that have a latency; how much each says is taken from the requests."""
    values = np.where(counts > 0, sample.at_most, 0.0)
    mean = float((values * counts).sum() / counts.sum())
    known = np.isfinite(sample.typical)
    inflation = dependence.of_percentile(sample.due_s, sample.typical, 50.0)
    error = float(sample.typical[known].std()) * math.sqrt(inflation / max(int(known.sum()), 1))
    return _around(mean, error, level)


def _geometric_mean(sample: Sample, level: float) -> Estimate:
    """Over requests. Between two runs of one schedule it changes by what the same request does."""
    known = np.isfinite(sample.typical) & (sample.typical > 0)
    logs = np.log(sample.typical[known])
    inflation = dependence.of_percentile(sample.due_s, sample.typical, 50.0)
    error = float(logs.std()) * math.sqrt(inflation / max(len(logs), 1))
    middle, reach = float(logs.mean()), float(norm.ppf((1 + level) / 2)) * error
    return Estimate(*(math.exp(end) for end in (middle, middle - reach, middle + reach)))


def _plain_mean(values: Floats, level: float) -> Estimate:
    return _around(float(values.mean()), float(values.std()) / math.sqrt(len(values)), level)


def _around(mean: float, error: float, level: float) -> Estimate:
    """A mean with its interval, from its standard error."""
    reach = float(norm.ppf((1 + level) / 2)) * error
    return Estimate(mean, mean - reach, mean + reach)


def _difference(high: Estimate, low: Estimate) -> Estimate:
    """P95 less P50; its ends as if both were independent, which is more than they are apart."""
    ends = (high.value, high.low, high.high, low.value, low.low, low.high)
    if any(end is None or not math.isfinite(end) for end in ends):
        return Estimate(None)
    top, top_low, top_high, bottom, bottom_low, bottom_high = (float(end or 0.0) for end in ends)
    value = top - bottom
    down = math.hypot(top - top_low, bottom_high - bottom)
    up = math.hypot(top_high - top, bottom - bottom_low)
    return Estimate(value, max(value - down, 0.0), value + up)


def _rates(measured: Measurements, level: float) -> Iterator[tuple[str, Estimate]]:
    tokens = measured.tokens_per_second()
    if len(tokens) > 1:
        yield "output_tokens_per_s.mean", _series(tokens, level)
    start, end = measured.window_s
    ended = measured.columns.numbers["last_token_s"][measured.columns.completed]
    edges = np.arange(math.floor(end - start) + 1) + start
    if len(edges) > 2:
        counts, _ = np.histogram(ended, edges)
        yield "completed_per_s.mean", _series(counts.astype(np.float64), level)


def _of_gpu(seen: Observed, level: float) -> Iterator[tuple[str, Estimate]]:
    """Of the GPU that drew most, in the measured window."""
    start, end = seen.measured.window_s
    inside = [sample for sample in seen.gpu.samples if start <= sample.at_s < end]
    if not inside:
        return
    by_gpu = {index: [s for s in inside if s.gpu == index] for index in {s.gpu for s in inside}}
    mine = max(by_gpu.values(), key=lambda group: np.nansum(column(group, "power_w")))
    looks = (("util_gpu_pct", "gpu_util", 0.01), ("dram_active_pct", "gpu_dram_active", 0.01),
             ("power_w", "gpu_power", 1.0))  # fmt: skip
    for name, metric, scale in looks:
        values = column(mine, name) * scale
        values = values[np.isfinite(values)]
        if len(values) > 1:
            yield f"{metric}.mean", _series(values, level)
            yield f"{metric}.max", Estimate(float(values.max()))
    memory = column(mine, "mem_used_mib")
    if np.isfinite(memory).any():
        yield "gpu_memory.max", Estimate(float(np.nanmax(memory)))
    energy = column(mine, "energy_j")
    energy = energy[np.isfinite(energy)]
    if len(energy) > 1:
        spent = float(energy[-1] - energy[0])
        good = seen.measured.judged() & seen.measured.columns.completed
        tokens = float(np.nansum(seen.measured.columns.numbers["output_tokens"][good]))
        for metric, count in (("energy_per_token", tokens), ("energy_per_request", good.sum())):
            if count:
                yield f"{metric}.mean", Estimate(spent / float(count))


def _series(values: Floats, level: float) -> Estimate:
    """Mean of a series whose neighbours are alike."""
    error = math.sqrt(dependence.long_run_variance(values) / len(values))
    return _around(float(values.mean()), error, level)


def _cold_start_s(info: Mapping[str, Any]) -> float | None:
    """From the server process's start to its readiness, where it tells."""
    startup = info.get("startup")
    value = startup.get("total_s") if isinstance(startup, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _stable_qps(directory: Path) -> Estimate | None:
    """The highest rate that a capacity search beside the run proved, up to the lowest it disproved.

    Raises:
        RunDirError: the search's file is spoilt.
    """
    for place in (directory, directory.resolve().parent):
        if (place / CAPACITY).exists():
            answer = read_json(place / CAPACITY).get("answer") or {}
            passes, fails = answer.get("passes"), answer.get("fails")
            return None if passes is None else Estimate(float(passes), float(passes), fails)
    return None
