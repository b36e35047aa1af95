"""The numbers that a diagnosis turns on: one table, each with its unit and where it comes from.

They are heuristics, chosen so that measured cases fall on the right side with room. "H200" is an
NVIDIA H200 with the 1.5B model of the reference server, driver 580, measured for this project.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number; `source` says why it is not another."""

    value: float
    unit: str
    source: str


TABLE = {
    "evidence_s": Threshold(10, "s", "NVML's power is a 1 s mean: ten of them are the least"),
    "evidence_samples": Threshold(20, "samples", "the mean of 20 is stable within some percent"),
    "idle_requests": Threshold(0.2, "requests", "a request is open in a fifth of the time at most"),
    "idle_util": Threshold(5, "%", "H200: 0 idle, 10 for a copy in a tenth of the time"),
    "throttled": Threshold(0.05, "of the time", "below it no P95 can come from throttling alone"),
    "own_limit_clock": Threshold(0.6, "of the highest clock", "H200 at 692 W: matrix product 0.74"),
    "kv_usage": Threshold(0.9, "of the cache", "vLLM preempts when no block is left; P95 in time"),
    "tensor": Threshold(50, "%", "H200: 76 for a matrix product, 0.2 to 4 in decoding"),
    "mfu": Threshold(0.4, "of peak", "H200: 8,192 tokens of prefill alone reach 0.41"),
    "dram": Threshold(60, "%", "H200: 82 to 86 is the most that copying and reading reach"),
    "mbu": Threshold(0.5, "of peak", "the same without the reads that a roofline does not know"),
    "wasted_ratio": Threshold(2, "x MBU", "H200: counter and MBU agree within 1.5x, wasted is 3x"),
    "wasted_dram": Threshold(8, "%", "below it rounding makes the ratio"),
    "quiet_dram": Threshold(30, "%", "H200: 3 to 17 where the host or small kernels bound"),
    "quiet_tensor": Threshold(20, "%", "H200: 0.2 to 4 there"),
    "gap_util": Threshold(70, "%", "H200: host 22 to 57, small kernels 74 to 94"),
    "served": Threshold(1, "requests", "with fewer open, gaps are for want of requests"),
    "busy_thread": Threshold(90, "% of a core", "one Python thread at its limit"),
    "waiting": Threshold(0.5, "requests", "someone waits half of the time"),
    "ttft_over_prefill": Threshold(3, "x", "M/M/1 at load 2/3: waiting is twice the service"),
    "flat_tpot": Threshold(1.5, "x", "P90 over P50: decoding itself is not what slows down"),
    "growth": Threshold(0.1, "of the start", "1 % a minute over the least duration"),
    "growth_late": Threshold(0.03, "of the start", "still growing in the run's second half"),
    "growth_s": Threshold(600, "s", "allocators and caches fill for some minutes"),
    "near": Threshold(0.15, "of a limit", "a value this near to a limit could fall either way"),
}  # fmt: skip

Limits = Mapping[str, float]
LIMITS: Limits = MappingProxyType({name: one.value for name, one in TABLE.items()})
