"""gpu.jsonl as the sidecar or the puller left it, read back onto the run's time axis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from slo.rundir import RunDirError, read_lines, refuse_unknown_schema, validated

SCHEMA = "1.0"

# What a person reads for the errors that only mean "there is no GPU here".
IN_WORDS = {
    "NVMLError_LibraryNotFound": "no NVML library",
    "NVMLError_DriverNotLoaded": "no NVIDIA driver loaded",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """What does not change of one GPU; None where it could not be read."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_total_mib: float | None = None
    peak_bandwidth_gb_s: float | None = None  # bus width x memory clock x 2
    max_sm_clock_mhz: float | None = None
    max_mem_clock_mhz: float | None = None
    bus_width_bits: int | None = None
    power_limit_w: float | None = None  # in force
    default_power_limit_w: float | None = None  # the board's own
    mig: bool | None = None
    gpm: bool = False
    unsupported: dict[str, str] | None = None  # field -> error name; its samples are None


@dataclass(frozen=True, slots=True)
class GpuHeader:
    """One start of a sidecar."""

    host: str
    pid: int
    period_s: float
    t_wall_ns: int
    t_mono_ns: int
    driver: str | None = None
    nvml_version: str | None = None
    unavailable: str | None = None  # why there are no GPUs, as NVML says it
    gpus: tuple[GpuInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One compute process; `pid` is the host's, also for a sidecar inside a container."""

    pid: int
    mem_mib: float | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One pass over one GPU. None: the field failed, or was not asked in this pass."""

    at_s: float  # from the run's start
    gpu: int
    util_gpu_pct: float | None = None  # share of time in which any kernel ran
    util_mem_pct: float | None = None  # share of time in which memory was touched; no bandwidth
    mem_used_mib: float | None = None
    mem_reserved_mib: float | None = None  # None: mem_used_mib includes it (old driver)
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    clocks_event_reasons: int | None = None  # NVML's bit mask
    energy_j: float | None = None  # since the driver was loaded; each second
    processes: tuple[GpuProcess, ...] | None = None  # each second
    throttled_power_s: float | None = None  # so far, each second, from here on
    throttled_sw_thermal_s: float | None = None
    throttled_hw_thermal_s: float | None = None
    throttled_brake_s: float | None = None
    graphics_active_pct: float | None = None  # GPM, Hopper and newer, from here on
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    fp16_active_pct: float | None = None
    fp32_active_pct: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """A field that began to fail while sampling went on, or a GPU that was lost (`field` "gpu")."""

    at_s: float
    gpu: int | None
    field: str
    error: str


@dataclass(frozen=True, slots=True)
class Clock:
    """Another host's wall clock minus ours, known to within `bound_ns`, at our time `t_wall_ns`."""

    t_wall_ns: int
    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class GpuLog:
    """GPU evidence of a run; `unavailable` says in words why there is none to be joined."""

    unavailable: str | None
    headers: tuple[GpuHeader, ...] = ()
    samples: tuple[GpuSample, ...] = ()
    events: tuple[GpuEvent, ...] = ()
    clocks: tuple[Clock, ...] = ()  # empty: the sidecar ran on the run's own host

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs of the last start that saw any."""
        return next((header.gpus for header in reversed(self.headers) if header.gpus), ())


_HEADER = TypeAdapter(GpuHeader)
_SAMPLE = TypeAdapter(GpuSample)
_EVENT = TypeAdapter(GpuEvent)
_CLOCK = TypeAdapter(Clock)


def read_gpu_log(
    path: Path, *, t0_mono_ns: int, t0_wall_ns: int, offset_ns: int | None = None
) -> GpuLog:
    """Read gpu.jsonl; a missing file, or one without samples, is a log that is unavailable.

    Times come from the monotonic clock when the sidecar ran on the run's own host; from the wall
    clock, less its offset, when clock lines (or `offset_ns`) say that it ran on another.

    Raises:
        RunDirError: an unknown schema, or a line that is none of the log's; names file and line.
    """
    if not path.exists():
        return GpuLog("no sidecar ran")
    lines = [(f"{path}:{number}", line) for number, line in enumerate(read_lines(path), 1)]
    for where, line in lines:
        if not isinstance(line, dict):
            raise RunDirError(f"{where}: a line of the GPU log is an object, not {line!r:.80}")
        if line.get("type") == "header":
            refuse_unknown_schema(path, line, SCHEMA)
    clocks = tuple(_read(_CLOCK, _of_type(lines, "clock")))
    known = clocks if offset_ns is None else (Clock(t0_wall_ns, offset_ns, 0),)

    def on_axis(where: str, line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        try:
            if not known:
                return where, {**line, "at_s": (line["t_mono_ns"] - t0_mono_ns) / 1e9}
            wall_ns = line["t_wall_ns"]
            ours_ns = wall_ns - offset_at(known, wall_ns)
            return where, {**line, "at_s": (ours_ns - t0_wall_ns) / 1e9}
        except (KeyError, TypeError):
            raise RunDirError(f"{where}: t_wall_ns or t_mono_ns is missing or no number") from None

    headers = tuple(_read(_HEADER, _of_type(lines, "header")))
    samples = tuple(_read(_SAMPLE, (on_axis(*at) for at in _of_type(lines, "sample"))))
    events = tuple(_read(_EVENT, (on_axis(*at) for at in _of_type(lines, "event"))))
    return GpuLog(_why_unavailable(headers, samples, known), headers, samples, events, clocks)


def offset_at(clocks: Sequence[Clock], wall_ns: int) -> int:
    """The other host's clock minus ours, between two measurements of it drifting linearly."""
    first, last = clocks[0], clocks[-1]
    if last.t_wall_ns <= first.t_wall_ns:
        return first.offset_ns
    share = (wall_ns - first.offset_ns - first.t_wall_ns) / (last.t_wall_ns - first.t_wall_ns)
    within = min(1.0, max(0.0, share))
    return round(first.offset_ns + within * (last.offset_ns - first.offset_ns))


def _why_unavailable(
    headers: Sequence[GpuHeader], samples: Sequence[GpuSample], clocks: Sequence[Clock]
) -> str | None:
    if not headers:
        return "the sidecar left no header: it was stopped before it could start"
    if not samples:
        reason = headers[-1].unavailable
        if reason is None:
            return "the sidecar wrote no sample"
        return IN_WORDS.get(reason.split(":")[0], reason)
    bound_s = max((clock.bound_ns for clock in clocks), default=0) / 1e9
    half_s = headers[-1].period_s / 2
    if bound_s > half_s:
        return (
            f"the clock of {headers[-1].host} is known to within {bound_s:.3f} s only; "
            f"joining it with latencies needs half a period, {half_s:.3f} s"
        )
    return None


def _of_type(lines: list[tuple[str, Any]], kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [(where, line) for where, line in lines if line.get("type") == kind]


def _read(adapter: TypeAdapter[T], lines: Iterable[tuple[str, dict[str, Any]]]) -> Iterable[T]:
    return (validated(adapter, line, where) for where, line in lines)
