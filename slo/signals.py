"""The numbers of one run that a diagnosis looks at; None is "not measured", never 0."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slo.gpu_log import GpuInfo, GpuSample
from slo.latencies import Floats
from slo.request_table import Requests
from slo.roofline import (
    Machine,
    decode_flops,
    kv_bytes_per_token,
    prefill_flops,
    read_bytes,
)
from slo.series import (
    Growth,
    column,
    growth,
    increase,
    mean,
    overlaps,
    percentile,
    rate,
    share_of,
    union_s,
)
from slo.server_log import ServerSample

# NVML's mask of why clocks are low: of its bits, those that take speed away from a loaded GPU.
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
# The driver's own counters of the same, in s, which need no luck with the moment of sampling.
THROTTLE_COUNTERS = {
    "throttled_power_s": "power cap",
    "throttled_sw_thermal_s": "software thermal limit",
    "throttled_hw_thermal_s": "hardware thermal limit",
    "throttled_brake_s": "power brake",
}


@dataclass(frozen=True, slots=True)
class Throttling:
    """Share of the time in which the GPU was slowed down, and by what."""

    share: float
    by: str


@dataclass(frozen=True, slots=True)
class GpuSignals:
    """Means over the window of the GPU that was busiest."""

    gpu: int
    samples: int
    seconds: float
    util_pct: float | None
    util_mem_pct: float | None
    sm_pct: float | None
    tensor_pct: float | None
    dram_pct: float | None
    power_w: float | None
    throttling: Throttling | None
    clock_ratio: float | None  # of the SM clock, mean over its maximum
    limit_lowered: bool | None  # someone set the power limit below the board's own
    used: Growth | None


@dataclass(frozen=True, slots=True)
class Load:
    """What the requests say of the server's work in the window."""

    open: float  # mean number of requests sent and not ended
    decoding: float  # mean number between first and last token, while there is any
    busy: float  # share of the time in which any is
    context: float  # mean tokens of prompt and answer so far
    tokens_per_s: float
    out_of_memory: int
    ttft_p50_s: float | None
    prefill_p50_s: float | None  # the server's own, or the quickest TTFT where it gives none
    prefill_told: bool
    queue_share: float | None  # of TTFT, by the server's own timings
    tokenize_share: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None


@dataclass(frozen=True, slots=True)
class Server:
    """What the target's own metrics say of the window."""

    running: float | None
    waiting: float | None
    kv_usage_p95: float | None
    preemptions: float | None
    cpu_pct: float | None  # of one core, all threads of its process together
    flops_per_s: float | None
    bytes_per_s: float | None
    allocated: Growth | None
    reserved: Growth | None


@dataclass(frozen=True, slots=True)
class Signals:
    """All of it."""

    seconds: float
    load: Load
    gpu: GpuSignals | None
    gpu_absent: str | None  # why there is no GPU evidence
    server: Server | None
    mbu: float | None  # estimates by the roofline, shares of the peak
    mfu: float | None
    estimate: str  # what these rest on, or why there are none


def load_of(requests: Requests, window_s: tuple[float, float]) -> Load:
    """Fold the requests; those of warm-up count with what falls into the window."""
    start, end = window_s
    length = max(end - start, 1e-9)
    numbers, good = requests.numbers, requests.good
    first, last = numbers["first_token_s"], numbers["last_token_s"]
    decoding = overlaps(first, last, window_s)
    busy_s = union_s(first, last, window_s)
    tokens = numbers["output_tokens"] * decoding / np.maximum(last - first, 1e-9)
    weight = np.nan_to_num(decoding)
    context = np.nan_to_num(numbers["prompt_tokens"]) + np.nan_to_num(numbers["output_tokens"]) / 2
    ttft, tpot = requests.ttft_s[good], requests.tpot_s[good]
    prefill = percentile(requests.stages_s["prefill"][good], 50)
    return Load(
        open=float(np.nansum(overlaps(numbers["sent_s"], numbers["ended_s"], window_s)) / length),
        decoding=float(np.nansum(decoding) / busy_s) if busy_s else 0.0,
        busy=busy_s / length,
        context=float((context * weight).sum() / weight.sum()) if weight.sum() else 0.0,
        tokens_per_s=float(np.nansum(tokens) / length),
        out_of_memory=requests.out_of_memory,
        ttft_p50_s=percentile(ttft, 50),
        prefill_p50_s=percentile(ttft, 0) if prefill is None else prefill,
        prefill_told=prefill is not None,
        queue_share=share_of(requests.stages_s["queue"][good], ttft),
        tokenize_share=share_of(requests.stages_s["tokenize"][good], ttft),
        tpot_p50_s=percentile(tpot, 50),
        tpot_p90_s=percentile(tpot, 90),
    )


def server_of(samples: Sequence[ServerSample], window_s: tuple[float, float]) -> Server | None:
    """Fold the target's own metrics; None without two samples in the window."""
    inside = [one for one in samples if window_s[0] <= one.at_s <= window_s[1]]
    if len(inside) < 2:
        return None
    of = {name: column(inside, name) for name in ServerSample.__slots__}
    seconds = inside[-1].at_s - inside[0].at_s
    read, write = (rate(of[name], seconds) for name in ("read_bytes", "write_bytes"))
    cpu = rate(of["cpu_s"], seconds)
    return Server(
        running=mean(of["running"]),
        waiting=mean(of["waiting"]),
        kv_usage_p95=percentile(of["kv_usage"], 95),
        preemptions=increase(of["preemptions"]),
        cpu_pct=None if cpu is None else 100 * cpu,
        flops_per_s=rate(of["flops"], seconds),
        bytes_per_s=None if read is None else read + (write or 0.0),
        allocated=growth(of["at_s"], of["allocated_mib"]),
        reserved=growth(of["at_s"], of["reserved_mib"]),
    )


def gpu_of(
    samples: Sequence[GpuSample], window_s: tuple[float, float], about: GpuInfo | None = None
) -> GpuSignals | None:
    """Fold the samples of one GPU; None without any in the window."""
    inside = [one for one in samples if window_s[0] <= one.at_s <= window_s[1]]
    if not inside:
        return None
    of = {name: column(inside, name) for name in _GPU_NUMBERS}
    at = of["at_s"]
    return GpuSignals(
        gpu=inside[0].gpu,
        samples=int(np.isfinite(of["util_gpu_pct"]).sum()),
        # Each sample speaks for one period, the last one too.
        seconds=float(at[-1] - at[0]) * len(at) / max(1, len(at) - 1),
        util_pct=mean(of["util_gpu_pct"]),
        util_mem_pct=mean(of["util_mem_pct"]),
        sm_pct=mean(of["sm_active_pct"]),
        tensor_pct=mean(of["tensor_active_pct"]),
        dram_pct=mean(of["dram_active_pct"]),
        power_w=mean(of["power_w"]),
        throttling=_throttling(inside, of),
        clock_ratio=_ratio(mean(of["sm_clock_mhz"]), about.max_sm_clock_mhz if about else None),
        limit_lowered=_lowered(about),
        used=growth(at, of["mem_used_mib"]),
    )


_GPU_NUMBERS = (
    "at_s",
    "util_gpu_pct",
    "util_mem_pct",
    "sm_active_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "power_w",
    "sm_clock_mhz",
    "mem_used_mib",
    *THROTTLE_COUNTERS,
)


def rooflines(
    load: Load, server: Server | None, machine: Machine, prompts: Floats, seconds: float
) -> tuple[float | None, float | None]:
    """MBU and MFU over the window: by the server's own counters where it has them.

    `prompts` are the tokens computed of the prompts whose first token came in the window.
    """
    peak = machine.peak
    traffic = server.bytes_per_s if server else None
    if traffic is None and load.tokens_per_s and load.decoding:
        # Each sequence gets a token a step, while any is decoding.
        steps_per_s = load.tokens_per_s / load.decoding
        kv = load.tokens_per_s * (load.context + 1) * kv_bytes_per_token(machine)
        traffic = steps_per_s * read_bytes(machine) + kv
    work = server.flops_per_s if server else None
    if work is None:
        counted = prompts[np.isfinite(prompts)]
        prefill = float(sum(prefill_flops(machine, n) for n in counted)) / max(seconds, 1e-9)
        work = prefill + load.tokens_per_s * decode_flops(machine, load.context)
    mbu = None if traffic is None else traffic / peak.bandwidth
    return mbu, None if peak.flops == np.inf else work / peak.flops


def _ratio(value: float | None, most: float | None) -> float | None:
    return None if value is None or not most else value / most


def _lowered(about: GpuInfo | None) -> bool | None:
    if about is None or about.power_limit_w is None or about.default_power_limit_w is None:
        return None
    return about.power_limit_w < 0.99 * about.default_power_limit_w


def _throttling(samples: Sequence[GpuSample], of: dict[str, Floats]) -> Throttling | None:
    """By the driver's counters where it has them, and by the share of samples with such a bit."""
    shares: dict[str, float] = {}
    masks = [one.clocks_event_reasons for one in samples if one.clocks_event_reasons is not None]
    if masks:
        for bit, by in THROTTLES.items():
            shares[by] = sum(bool(mask & bit) for mask in masks) / len(masks)
    for name, by in THROTTLE_COUNTERS.items():
        known = np.isfinite(of[name])
        at, seconds = of["at_s"][known], of[name][known]
        if len(at) >= 2 and at[-1] > at[0]:
            counted = float((seconds[-1] - seconds[0]) / (at[-1] - at[0]))
            shares[by] = max(shares.get(by, 0.0), counted)
    if not shares:
        return None
    by = max(shares, key=lambda name: shares[name])
    return Throttling(min(1.0, max(0.0, shares[by])), by)
