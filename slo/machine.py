"""Which model ran on which GPUs, as far as a run says it: what its roofline is made of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slo.gpu_log import GpuInfo
from slo.hardware import WEIGHT_BYTES, Peak, peak_of, shape_of
from slo.roofline import Machine, least_bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A roofline, or in words why there is none. `cautious` errs towards too high a roofline."""

    machine: Machine | None
    cautious: Machine | None
    why: str  # what was assumed, or what is missing


def machine_of(model: str | None, info: Mapping[str, Any], gpus: Sequence[GpuInfo]) -> Found:
    """The roofline of a run: its model by name, its number formats by /info, its GPUs by NVML.

    Where /info names no format, 16 bit is assumed, and for the cautious one the fewest bits known.
    """
    name = info.get("model") or model
    shape = shape_of(str(name)) if name else None
    if shape is None:
        return Found(None, None, f"no shape of the model {name} is known here")
    peak = _peak(info, gpus)
    if peak is None:
        return Found(None, None, "no GPU whose peaks are known was measured")
    flags = info.get("flags") or {}
    told = next(
        (str(v) for v in (flags.get("weights"), info.get("dtype")) if v in WEIGHT_BYTES), None
    )
    head = WEIGHT_BYTES.get(str(info.get("dtype")), 2.0)
    kv = 1.0 if str(flags.get("kv_cache")) in ("int8", "fp8") else head
    machine = Machine(shape, peak, WEIGHT_BYTES.get(told or "", 2.0), head, kv)
    least = least_bytes(told)
    cautious = Machine(shape, peak, least, min(head, 2.0 if told else least), kv if told else 1.0)
    return Found(machine, cautious, f"weights as {told}" if told else "16-bit weights assumed")


def _peak(info: Mapping[str, Any], gpus: Sequence[GpuInfo]) -> Peak | None:
    """Of all GPUs together; FLOP/s are infinite where the GPU's name is not known here."""
    told = info.get("gpu")
    if not gpus and isinstance(told, Mapping):
        return peak_of(str(told.get("name")))
    bandwidth, flops = 0.0, 0.0
    for gpu in gpus:
        known = peak_of(gpu.name)
        if gpu.peak_bandwidth_gb_s is None and known is None:
            return None
        datasheet = known.bandwidth if known else 0.0
        bandwidth += (gpu.peak_bandwidth_gb_s or 0.0) * 1e9 or datasheet
        flops += known.flops if known else math.inf
    return Peak(bandwidth, flops) if bandwidth else None
