"""What a report shows of a run, beside its verdict: pure numbers, folded once from the records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slo.causes import Causes

PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class LatencyLine:
    """Percentiles of one metric of one scenario, in seconds.

    A percentile that falls among the failures is None: it is over every target. `n` counts all
    judged requests (for `itl`: all gaps), `failed` those without a latency.
    """

    scenario: str  # "all" or a name
    metric: str  # ttft, ttfat, e2e, tpot, itl, ttft_from_sent, e2e_from_sent
    n: int
    failed: int
    mean_s: float | None  # of the completed
    max_s: float | None  # of the completed
    percentiles_s: dict[float, float | None]  # by PERCENTILES


@dataclass(frozen=True, slots=True)
class SecondsLine:
    """One second of the run, by the second in which requests were due (rates and latencies)."""

    second: int
    offered: int  # arrivals due
    completed: int
    failed: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    e2e_p50_s: float | None
    e2e_p95_s: float | None
    output_tokens: int
    in_flight: int  # open at the end of this second


@dataclass(frozen=True, slots=True)
class FailureKind:
    """All failures of one kind, and one example of it."""

    kind: str
    count: int
    share: float  # of the judged requests
    example_seq: int
    example: str


@dataclass(frozen=True, slots=True)
class GpuSecond:
    """One sidecar sample of one GPU, on the run's time axis."""

    at_s: float
    gpu: int
    util_pct: float | None
    mem_used_mib: float | None
    power_w: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class GpuView:
    """GPU evidence of a run; `not_measured` says in words why there is none."""

    not_measured: str | None  # e.g. "no NVML library"
    names: tuple[str, ...] = ()
    samples: tuple[GpuSecond, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything a report draws."""

    judged: int
    completed: int
    failed: int
    offered_per_s: float
    achieved_per_s: float  # requests sent per second of the measured window
    output_tokens_per_s: float
    tokens_per_chunk: float | None
    latencies: tuple[LatencyLine, ...]
    seconds: tuple[SecondsLine, ...]
    failures: tuple[FailureKind, ...]
    gpu: GpuView
    target: dict[str, object]  # GET /info at the run's start, flattened; empty: not measured
    causes: "Causes | None" = None  # why it was as fast as it was
