"""GPU, server and latency on one time axis, by second, and what went with slow requests.

A request belongs to the second in which it was due, as everywhere; what the GPU and the server did
for it is taken from all seconds in which it was open.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from slo.gpu_log import GpuSample
from slo.latencies import Floats
from slo.request_table import STAGES, Requests
from slo.series import column, mean, percentile
from slo.server_log import ServerSample

Indices = NDArray[np.int64]

FEWEST_SECONDS = 20
SLOWEST = 0.05

# Series of the axis: name, unit, and the field that it is the mean of.
GPU_SERIES = {
    "GPU-util": ("%", "util_gpu_pct"),
    "DRAM": ("%", "dram_active_pct"),
    "tensor": ("%", "tensor_active_pct"),
    "SM": ("%", "sm_active_pct"),
    "power": ("W", "power_w"),
    "SM clock": ("MHz", "sm_clock_mhz"),
    "GPU memory": ("MiB", "mem_used_mib"),
}
SERVER_SERIES = {
    "running": ("requests", "running"),
    "waiting": ("requests", "waiting"),
    "KV cache": ("of 1", "kv_usage"),
    "allocated": ("MiB", "allocated_mib"),
}
UNITS = {name: unit for name, (unit, _) in (GPU_SERIES | SERVER_SERIES).items()} | {
    "open": "requests"
}


@dataclass(frozen=True, slots=True)
class Axis:
    """Series by second from the run's start; nan where a second has no value."""

    seconds: int
    series: dict[str, Floats]


@dataclass(frozen=True, slots=True)
class Correlation:
    """How latency and a series went up and down together: rank correlation over n seconds."""

    latency: str  # ttft or e2e, the median of a second
    series: str
    rho: float
    n: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """Mean of a series while the slowest requests were open, and while the others were."""

    series: str
    unit: str
    slowest: float
    rest: float


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the server's own timings, and of the slowest requests alone; in seconds."""

    name: str
    mean_s: float
    p95_s: float
    slowest_s: float  # mean of the slowest


@dataclass(frozen=True, slots=True)
class LengthLine:
    """Requests with prompts of one length; P95 is None where it falls among the failures."""

    label: str
    n: int
    prompt_tokens: float | None  # mean
    ttft_p95_s: float | None
    e2e_p95_s: float | None


def axis_of(
    requests: Requests,
    gpu: Sequence[GpuSample],
    server: Sequence[ServerSample],
    seconds: int,
) -> Axis:
    """Put everything on the axis."""
    series: dict[str, Floats] = {"open": _open(requests, seconds)}
    for samples, known in ((gpu, GPU_SERIES), (server, SERVER_SERIES)):
        at = np.floor(column(samples, "at_s")).astype(np.int64)
        inside = (at >= 0) & (at < seconds)
        for name, (_, field) in known.items():
            values = _by_second(at[inside], column(samples, field)[inside], seconds)
            if np.isfinite(values).any():
                series[name] = values
    return Axis(seconds, series)


def correlations(
    axis: Axis, requests: Requests, window_s: tuple[float, float]
) -> tuple[Correlation, ...]:
    """Of each latency with each series, the strongest first; none over fewer than 20 seconds."""
    start, end = math.ceil(window_s[0]), math.floor(window_s[1])
    due = np.floor(requests.numbers["due_s"]).astype(np.int64)
    found = []
    for latency, values in (("ttft", requests.ttft_s), ("e2e", requests.e2e_s)):
        known = np.isfinite(values) & (due >= start) & (due < end)
        medians = _median_by_second(due[known], values[known], axis.seconds)
        for name, series in axis.series.items():
            both = np.isfinite(medians) & np.isfinite(series)
            a, b = medians[both], series[both]
            # A level series has no ranks; its noise in the last digit is no series either.
            if len(a) >= FEWEST_SECONDS and np.ptp(a) > 0 and np.ptp(b) > 1e-3 * abs(b).max():
                found.append(Correlation(latency, name, float(spearmanr(a, b)[0]), len(a)))
    return tuple(sorted(found, key=lambda one: -abs(one.rho)))


def slowest(requests: Requests) -> tuple[Indices, Indices]:
    """Positions of the slowest 5 % by E2E of the judged and completed requests, and of the rest."""
    good = np.flatnonzero(requests.good & np.isfinite(requests.e2e_s))
    order = good[np.argsort(requests.e2e_s[good], kind="stable")]
    cut = len(order) - math.ceil(SLOWEST * len(order))
    return order[cut:], order[:cut]


def contrasts(axis: Axis, requests: Requests) -> tuple[Contrast, ...]:
    """What GPU and server did during the slowest 5 % of requests, against the rest."""
    slow, rest = slowest(requests)
    if not len(slow) or not len(rest):
        return ()
    told = []
    for name, series in axis.series.items():
        during = _while_open(series, requests)
        a, b = mean(during[slow]), mean(during[rest])
        if a is not None and b is not None:
            told.append(Contrast(name, UNITS[name], a, b))
    return tuple(told)


def stages(requests: Requests) -> tuple[Stage, ...]:
    """Where the time of a request went, by the server's own timings; the rest is "elsewhere"."""
    slow, _ = slowest(requests)
    good = requests.good & np.isfinite(requests.e2e_s)
    parts = {
        name: requests.stages_s[name]
        for name in STAGES
        if np.isfinite(requests.stages_s[name][good]).any()
    }
    if not parts:
        return ()
    # Network, the client's own part, and what the server does not count.
    parts["elsewhere"] = requests.e2e_s - sum(np.nan_to_num(part) for part in parts.values())
    told = []
    for name, part in parts.items():
        known = part[good & np.isfinite(part)]
        worst = mean(part[slow]) if len(slow) else None
        p95 = percentile(known, 95)
        if len(known) and p95 is not None:
            told.append(Stage(name, float(known.mean()), p95, worst or 0.0))
    return tuple(told)


def by_length(requests: Requests) -> tuple[LengthLine, ...]:
    """P95 against the input's length: by class where there are several, else by quarters."""
    judged = np.flatnonzero(requests.judged)
    classes = [requests.input_class[i] for i in judged]
    prompts = requests.numbers["prompt_tokens"]
    groups: Mapping[str, list[int]]
    if len(set(classes)) > 1:
        names = sorted(set(classes), key=lambda name: (len(name), name))
        groups = {
            name: [int(i) for i, of in zip(judged, classes, strict=True) if of == name]
            for name in names
        }
    else:
        known = judged[np.isfinite(prompts[judged])]
        order = known[np.argsort(prompts[known], kind="stable")]
        if len(np.unique(prompts[known])) < 4:
            return ()
        groups = {}
        for part in np.array_split(order, 4):
            low, high = prompts[part[0]], prompts[part[-1]]
            groups[f"{low:.0f} to {high:.0f} tokens"] = part.tolist()
    return tuple(_length(label, np.array(where), requests) for label, where in groups.items())


def _length(label: str, where: Indices, requests: Requests) -> LengthLine:
    prompts = requests.numbers["prompt_tokens"][where]
    p95 = [_p95_with_failures(values[where]) for values in (requests.ttft_s, requests.e2e_s)]
    return LengthLine(label, len(where), mean(prompts), p95[0], p95[1])


def _p95_with_failures(values: Floats) -> float | None:
    ordered = np.sort(np.where(np.isfinite(values), values, np.inf))
    found = float(ordered[math.ceil(0.95 * len(ordered) - 1e-9) - 1])
    return found if math.isfinite(found) else None


def _by_second(at: Indices, values: Floats, seconds: int) -> Floats:
    known = np.isfinite(values)
    total = np.bincount(at[known], values[known], minlength=seconds)
    count = np.bincount(at[known], minlength=seconds)
    means: Floats = np.divide(total, count, out=np.full(seconds, np.nan), where=count > 0)
    return means


def _median_by_second(at: Indices, values: Floats, seconds: int) -> Floats:
    medians = np.full(seconds, np.nan)
    order = np.argsort(at, kind="stable")
    at, values = at[order], values[order]
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    for start, part in zip(starts, np.split(values, starts[1:]), strict=True) if len(at) else ():
        if at[start] < seconds:
            medians[at[start]] = round(float(np.median(part)), 6)  # a us; less is the clock
    return medians


def _open(requests: Requests, seconds: int) -> Floats:
    """Mean number of open requests in each second."""
    sent, ended = requests.numbers["sent_s"], requests.numbers["ended_s"]
    known = np.isfinite(sent) & np.isfinite(ended)
    edges = np.arange(seconds + 1, dtype=np.float64)

    def area(moments: Floats) -> Floats:
        """Sum over the moments of the time since, at each edge."""
        ordered = np.sort(moments)
        count = np.searchsorted(ordered, edges)
        return count * edges - np.concatenate(([0.0], np.cumsum(ordered)))[count]

    inside: Floats = np.diff(area(sent[known]) - area(ended[known]))
    return inside


def _while_open(series: Floats, requests: Requests) -> Floats:
    """Mean of a series over the seconds in which each request was open."""
    known = np.isfinite(series)
    sums = np.concatenate(([0.0], np.cumsum(np.where(known, series, 0.0))))
    counts = np.concatenate(([0], np.cumsum(known)))
    sent, ended = requests.numbers["sent_s"], requests.numbers["ended_s"]
    ok = np.isfinite(sent) & np.isfinite(ended)
    first = np.where(ok, sent, 0.0).astype(np.int64).clip(0, len(series))
    last = (np.where(ok, ended, 0.0).astype(np.int64) + 1).clip(0, len(series))
    n = counts[last] - counts[first]
    usable = ok & (n > 0)
    total = sums[last] - sums[first]
    means: Floats = np.divide(total, n, out=np.full(len(sent), np.nan), where=usable)
    return means
