"""What slo.yaml may ask of GPU and server: which quantities there are, in which units."""

import re
from dataclasses import dataclass

from slo.quantities import share

FOLDS = ("mean", "max", "growth")
_AMOUNT = re.compile(r"^([+-]?\d+(?:\.\d+)?)\s*(\S*)$")
_PER_HOUR = re.compile(r"^(.*%)\s*/\s*h$")


@dataclass(frozen=True, slots=True)
class Resource:
    """One quantity that gpu.jsonl or server.jsonl samples.

    `units` says what each unit that may be written is worth in `unit`; a sample times `scale` is
    in `unit`.
    """

    field: str
    unit: str
    units: dict[str, float]
    scale: float = 1.0


_MEMORY = {"MiB": 1.0, "GiB": 1024.0}
_SHARE = {"%": 0.01}
_COUNT = {"": 1.0}

RESOURCES = {
    "gpu_memory": Resource("mem_used_mib", "MiB", _MEMORY),
    "gpu_utilization": Resource("util_gpu_pct", "1", _SHARE, 0.01),
    "gpu_power": Resource("power_w", "W", {"W": 1.0}),
    "gpu_temperature": Resource("temperature_c", "C", {"C": 1.0}),
    "gpu_sm_clock": Resource("sm_clock_mhz", "MHz", {"MHz": 1.0}),
    "server_running": Resource("running", "requests", _COUNT),
    "server_waiting": Resource("waiting", "requests", _COUNT),
    "server_kv_usage": Resource("kv_usage", "1", _SHARE),
    "server_allocated_memory": Resource("allocated_mib", "MiB", _MEMORY),
    "server_reserved_memory": Resource("reserved_mib", "MiB", _MEMORY),
}
RESOURCE_METRICS = tuple(f"{name}_{fold}" for name in RESOURCES for fold in FOLDS)
GPU_METRICS = tuple(name for name in RESOURCE_METRICS if name.startswith("gpu_"))


def parts_of(metric: str) -> tuple[Resource, str]:
    """The quantity that a metric is about, and how its samples are folded: mean, max or growth."""
    name, _, fold = metric.rpartition("_")
    return RESOURCES[name], fold


def resource_limit(metric: str, text: str) -> tuple[float, str]:
    """A limit of a resource metric and its unit.

    Raises:
        ValueError: no such limit; says what is allowed.
    """
    resource, fold = parts_of(metric)
    if fold == "growth":
        found = _PER_HOUR.match(text)
        if not found:
            raise ValueError(f"{text!r} is no growth; write a share per hour: 5%/h")
        return share(found[1]), "1/h"
    amount = _AMOUNT.match(text)
    if not amount or amount[2] not in resource.units:
        allowed = " or ".join(f"12{unit}" for unit in resource.units)
        raise ValueError(f"{text!r} is no limit of {metric}; write {allowed}")
    return float(amount[1]) * resource.units[amount[2]], resource.unit
