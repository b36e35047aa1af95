"""From NVML to the sidecar's records: a header of what there is, then samples and events."""

import math
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from target import gpm, nvml_reading
from target.fast_pass import FastPass
from target.nvml_reading import GpuLostError, Reading, Values

SCHEMA = "1.0"
SLOW_BEAT_S = 1.0  # energy and process lists, which are dear to ask
SLOWEST_BEAT_S = 5.0  # counters of throttled time
GPM_BEAT_S = 0.2


@dataclass(slots=True)
class Gpu:
    """One GPU while it is sampled; `known_errors` are in the header or in an event already."""

    index: int
    handle: Any
    about: Values
    fast: FastPass
    window: gpm.GpmWindow | None = None
    known_errors: set[tuple[str, str]] = field(default_factory=set)
    whole: tuple[Any, int] | None = None  # of a MIG instance: its GPU's handle, its number in it


@dataclass(frozen=True, slots=True)
class Found:
    """What NVML gave at the start: the module and the GPUs to sample, or why there are none."""

    nvml: Any = None
    gpus: tuple[Gpu, ...] = ()
    about: tuple[Values, ...] = ()  # of every GPU, those too that cannot be sampled
    unavailable: str | None = None


def find_gpus() -> Found:
    """Start NVML and ask every GPU for everything once: the header is to say what is missing."""
    try:
        import pynvml as nvml
    except ModuleNotFoundError:
        return Found(unavailable="no pynvml package (pip install 'tailgate[gpu]')")
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as failure:
        return Found(unavailable=f"{nvml_reading.error_name(failure)}: {failure}")
    gpus: list[Gpu] = []
    about: list[Values] = []
    for index in range(count):
        try:
            gpu = _open_gpu(nvml, index, nvml.nvmlDeviceGetHandleByIndex(index))
        except GpuLostError as lost:
            about.append({"index": index, "unsupported": {"gpu": str(lost)}})
        except nvml.NVMLError as failure:
            error = nvml_reading.error_name(failure)
            about.append({"index": index, "unsupported": {"gpu": error}})
        else:
            gpus.append(gpu)
            about.append(gpu.about)
    after = count
    for split in [gpu for gpu in gpus if gpu.about["mig"]]:
        instances = list(_open_instances(nvml, split, after))
        after += len(instances)
        gpus += instances
        about += [instance.about for instance in instances]
    unavailable = None if gpus else f"none of {count} GPUs can be read" if count else "no GPU"
    return Found(nvml, tuple(gpus), tuple(about), unavailable)


def header(found: Found, period_s: float) -> Values:
    """The record of one start."""
    return {
        "type": "header",
        "schema": SCHEMA,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "period_s": period_s,
        **_now(),
        "driver": _version(found.nvml, "nvmlSystemGetDriverVersion"),
        "nvml_version": _version(found.nvml, "nvmlSystemGetNVMLVersion"),
        "unavailable": found.unavailable,
        "gpus": list(found.about),
    }


def sample(
    nvml: Any, gpu: Gpu, *, slow: bool, with_gpm: bool, slowest: bool = False
) -> list[Values]:
    """One sample and an event for each error not seen before.

    Raises:
        GpuLostError: the GPU is gone; `lost` makes the record of it.
    """
    reading, stamp = _pass(nvml, gpu, slow=slow, with_gpm=with_gpm, slowest=slowest)
    new = [item for item in reading.errors.items() if item not in gpu.known_errors]
    gpu.known_errors.update(new)
    return [
        {"type": "sample", "gpu": gpu.index, **stamp, **reading.values},
        *(_event(gpu, name, error) for name, error in new),
    ]


def lost(gpu: Gpu, error: GpuLostError) -> Values:
    """The record of a GPU that is gone, which is let go of."""
    release(gpu)
    return _event(gpu, "gpu", str(error))


def is_back(nvml: Any, gpu: Gpu) -> bool:
    """Whether a GPU that was lost answers again; it can be sampled then."""
    try:
        # Another handle: the old one may be of a GPU that was reset.
        handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index) if gpu.whole is None else gpu.handle
        fast = FastPass(nvml, handle)
        fast.read()
    except (nvml.NVMLError, GpuLostError):
        return False
    gpu.handle, gpu.fast = handle, fast
    gpu.window, _ = gpm.open_window(nvml, *(gpu.whole or (handle,)))
    return True


def end(beats: int, skipped: int) -> Values:
    """The record of an orderly stop, with the beats that were kept and those missed altogether."""
    return {"type": "end", **_now(), "beats": beats, "skipped": skipped}


def release(gpu: Gpu) -> None:
    """Free what a GPU holds inside the driver."""
    if gpu.window:
        gpu.window.close()
        gpu.window = None


def stop(found: Found) -> None:
    """End NVML; nothing depends on how that goes."""
    if found.nvml:
        for gpu in found.gpus:
            release(gpu)
        _version(found.nvml, "nvmlShutdown")


def on_beat(beat: int, previous: int, every_s: float, period_s: float) -> bool:
    """Whether a slower beat falls on this one, or fell on one missed since the previous."""
    every = max(1, math.ceil(round(every_s / period_s, 6)))
    return beat // every > previous // every


def _open_instances(nvml: Any, gpu: Gpu, index: int) -> Iterator[Gpu]:
    """The MIG instances of a GPU, numbered on after all others; no handle: left out."""
    try:
        places = range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle))
    except nvml.NVMLError:
        return
    for place in places:
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
            number = nvml.nvmlDeviceGetGpuInstanceId(handle)
            instance = _open_gpu(nvml, index, handle, (gpu, number))
        except (nvml.NVMLError, GpuLostError):
            continue  # no instance at this place
        yield instance
        index += 1


def _open_gpu(nvml: Any, index: int, handle: Any, part: tuple[Gpu, int] | None = None) -> Gpu:
    """A GPU, or where `part` says so a MIG instance of one."""
    about, unsupported = nvml_reading.describe(nvml, handle, index)
    if part:
        about |= {"mig": False, "mig_of": part[0].index, "gpu_instance": part[1]}
    whole = (part[0].handle, part[1]) if part else None
    window, no_gpm = gpm.open_window(nvml, *(whole or (handle,)))
    gpu = Gpu(index, handle, about, FastPass(nvml, handle), window, whole=whole)
    if window:
        time.sleep(gpm.SHORTEST_WINDOW_S * 1.2)  # or the first window holds nothing to judge by
    try:
        reading, _ = _pass(nvml, gpu, slow=True, with_gpm=True, slowest=True)
    except GpuLostError:
        release(gpu)
        raise
    gpu.known_errors.update(reading.errors.items())
    unsupported |= ({"gpm": no_gpm} if no_gpm else {}) | reading.errors
    gpu.about |= {"gpm": window is not None, "unsupported": unsupported}
    return gpu


def _pass(
    nvml: Any, gpu: Gpu, *, slow: bool, with_gpm: bool, slowest: bool
) -> tuple[Reading, Values]:
    """Read a GPU; the stamp is the middle of the fast part, and the slow part comes after it."""
    wall_ns, began_ns = time.time_ns(), time.monotonic_ns()
    fast = gpu.fast.read()
    took_ns = time.monotonic_ns() - began_ns
    parts = [fast]
    if with_gpm and gpu.window:
        parts.append(gpu.window.read())
    if slow:
        parts.append(nvml_reading.read(nvml, gpu.handle, nvml_reading.SLOW))
    if slowest:
        parts.append(nvml_reading.read(nvml, gpu.handle, nvml_reading.SLOWEST))
    values = {name: value for part in parts for name, value in part.values.items()}
    errors = {name: error for part in parts for name, error in part.errors.items()}
    half_ns = took_ns // 2
    stamp = {"t_wall_ns": wall_ns + half_ns, "t_mono_ns": began_ns + half_ns}
    return Reading(values, errors), {**stamp, "pass_us": round(took_ns / 1000)}


def _event(gpu: Gpu, name: str, error: str) -> Values:
    return {"type": "event", "gpu": gpu.index, "field": name, "error": error, **_now()}


def _now() -> Values:
    return {"t_wall_ns": time.time_ns(), "t_mono_ns": time.monotonic_ns()}


def _version(nvml: Any, function: str) -> str | None:
    if nvml is None:
        return None
    try:
        answer = getattr(nvml, function)()
    except nvml.NVMLError:
        return None
    return answer if isinstance(answer, str) else None
