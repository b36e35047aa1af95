"""One pass of NVML over one GPU: values by field, and the name of the error of each that failed.

Units are those of the field's name. A field that fails is None, never 0. `nvml` is the module
pynvml, handed in so that importing this file needs no GPU package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MIB = 1024 * 1024

Values = dict[str, Any]
Ask = Callable[[Any, Any], Values]

# The GPU has fallen off the bus: every further call would fail, some of them slowly.
LOST = ("NVMLError_GpuIsLost", "NVMLError_GpuNotFound")


class GpuLostError(Exception):
    """The GPU is gone; the message is NVML's error name."""


@dataclass(frozen=True, slots=True)
class Field:
    """Names that one question answers, and ways to ask it: newest first, old drivers' after it."""

    names: tuple[str, ...]
    ways: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pass gave: every field asked is in `values`, those that failed in `errors` too."""

    values: Values
    errors: dict[str, str]


def _energy(nvml: Any, gpu: Any) -> Values:
    return {"energy_j": nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000}


def _throttled(nvml: Any, gpu: Any) -> Values:
    """Time spent slowed down so far, by cause; a counter that fails by itself is left out."""
    asked = (
        nvml.NVML_FI_DEV_PERF_POLICY_POWER,
        nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
    )
    told = zip(THROTTLED, nvml.nvmlDeviceGetFieldValues(gpu, list(asked)), strict=True)
    return {
        name: round(one.value.ullVal / 1e9, 6)
        for name, one in told
        if one.nvmlReturn == nvml.NVML_SUCCESS
    }


def _processes(nvml: Any, gpu: Any) -> Values:
    return {"processes": _listed(nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu))}


def _processes_v2(nvml: Any, gpu: Any) -> Values:
    return {"processes": _listed(nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu))}


# Energy alone takes 2.4 ms on an H200: asked once a second.
SLOW = (
    Field(("energy_j",), (_energy,)),
    Field(("processes",), (_processes, _processes_v2)),
)
THROTTLED = (
    "throttled_power_s",
    "throttled_sw_thermal_s",
    "throttled_hw_thermal_s",
    "throttled_brake_s",
)
# Dearer still, and counters lose nothing by waiting.
SLOWEST = (Field(THROTTLED, (_throttled,)),)


def read(nvml: Any, gpu: Any, fields: tuple[Field, ...]) -> Reading:
    """Ask each field of one GPU.

    Raises:
        GpuLostError: the GPU is gone.
    """
    values: Values = {}
    errors: dict[str, str] = {}
    for field in fields:
        values.update(dict.fromkeys(field.names))
        error = ""
        for ask in field.ways:
            try:
                answer = ask(nvml, gpu)
            except nvml.NVMLError as failure:
                error = error_name(failure)
                if error in LOST:
                    raise GpuLostError(error) from None
                continue
            values.update(answer)
            # Where the old way answers less, what it lacks failed for the new way's reason.
            lacking = {name for name in field.names if name not in answer}
            errors.update(dict.fromkeys(lacking, error or "NVMLError_NotSupported"))
            break
        else:
            errors.update(dict.fromkeys(field.names, error))
    return Reading(values, errors)


def describe(nvml: Any, gpu: Any, index: int) -> tuple[Values, dict[str, str]]:
    """What does not change of one GPU, for the header; None where NVML does not say.

    Raises:
        GpuLostError: the GPU is gone.
    """
    found = read(nvml, gpu, _FIXED)
    width, clock = found.values["bus_width_bits"], found.values["max_mem_clock_mhz"]
    # Two transfers a clock, eight bits a byte: 6016 bit x 3201 MHz is the 4.8 TB/s of an H200.
    peak = round(width * clock * 2 / 8 / 1000, 1) if width and clock else None
    return {"index": index, **found.values, "peak_bandwidth_gb_s": peak}, found.errors


def error_name(failure: Exception) -> str:
    """NVML's name of an error, NVMLError_NotSupported say; a code without one keeps its number."""
    name = type(failure).__name__
    return f"{name}_{getattr(failure, 'value', '')}" if name == "NVMLError" else name


def _fixed(name: str, ask: Callable[[Any, Any], Any]) -> Field:
    return Field((name,), (lambda nvml, gpu: {name: ask(nvml, gpu)},))


_FIXED = (
    _fixed("uuid", lambda nvml, gpu: nvml.nvmlDeviceGetUUID(gpu)),
    _fixed("name", lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu)),
    _fixed("pci_bus_id", lambda nvml, gpu: nvml.nvmlDeviceGetPciInfo_v3(gpu).busId),
    _fixed("memory_total_mib", lambda nvml, gpu: _mib(nvml.nvmlDeviceGetMemoryInfo(gpu).total)),
    _fixed("bus_width_bits", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryBusWidth(gpu)),
    _fixed(
        "max_mem_clock_mhz",
        lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    ),
    _fixed(
        "max_sm_clock_mhz",
        lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    ),
    _fixed("power_limit_w", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000),
    _fixed(
        "default_power_limit_w",
        lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
    ),
    _fixed("mig", lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0] == 1),
)


def _mib(size_bytes: int) -> float:
    return round(size_bytes / MIB, 3)


def _listed(processes: list[Any]) -> list[Values]:
    # No size under WDDM and WSL: None, not 0.
    return [
        {
            "pid": one.pid,
            "mem_mib": None if one.usedGpuMemory is None else _mib(one.usedGpuMemory),
        }
        for one in processes
    ]
