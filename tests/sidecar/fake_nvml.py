"""A driver made of Python, put where the real bindings keep the library that they loaded.

pynvml asks the object in `pynvml.nvmlLib` for a function by name and hands it ctypes arguments, as
it would to the C library; structs, sizes, fallbacks and error classes are the real ones.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
GPU_IS_LOST = pynvml.NVML_ERROR_GPU_IS_LOST
INSUFFICIENT_SIZE = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
MIB = 1024 * 1024


@dataclass
class FakeGpu:
    """What one GPU answers; `errors` gives functions a return code of their own."""

    name: str = "Fake H200"
    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    util: tuple[int, int] = (31, 12)
    memory: tuple[int, int, int, int] = (1000 * MIB, 100 * MIB, 600 * MIB, 300 * MIB)
    power_mw: int = 123_456
    temperature_c: int = 41
    clocks: dict[int, int] = field(default_factory=lambda: {1: 1980, 2: 3201})
    bus_width: int = 6016
    power_limits_mw: tuple[int, int] = (500_000, 700_000)  # in force, and the board's own
    reasons: int = 0x4
    energy_mj: int = 7_654_321
    processes: list[tuple[int, int]] = field(default_factory=lambda: [(4242, 256 * MIB)])
    gpm: dict[int, float] | None = None
    gpm_returns: dict[int, int] = field(default_factory=dict)
    throttled_ns: dict[int, int] = field(
        default_factory=lambda: dict.fromkeys((74, 269, 270, 271), 0)
    )
    # A GPU split by MIG: by place, the number of the instance and the index of its own FakeGpu.
    instances: dict[int, tuple[int, int]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)


class FakeLibrary:
    """Functions by name, as getattr() of a CDLL gives them; those in `missing` are not exported."""

    def __init__(self, gpus: list[FakeGpu], missing: set[str] | None = None) -> None:
        self.gpus = gpus
        self.missing = missing or set()
        self.asked: list[str] = []
        self.snapshots: dict[int, tuple[float, int]] = {}  # GPM: when taken, and of which GPU
        inside = {own for gpu in gpus for _, own in gpu.instances.values()}
        self.count = len(gpus) - len(inside)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self.__dict__.get("missing", ()):
            raise AttributeError(name)
        if name in LIBRARY:
            return lambda *args: LIBRARY[name](self, *args)
        if name in DEVICE:
            return lambda handle, *args: self._ask(name, handle, *args)
        raise AttributeError(name)

    def _ask(self, name: str, handle: Any, *args: Any) -> int:
        self.asked.append(name)
        gpu = self.gpus[ctypes.cast(handle, ctypes.c_void_p).value - 1]
        if code := gpu.errors.get(name, gpu.errors.get("*", 0)):
            return code
        return DEVICE[name](gpu, *args) or 0


def put(out: Any, value: Any) -> None:
    """Write through the pointer that byref() made."""
    out._obj.value = value


def put_pointer(out: Any, address: int) -> None:
    ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = address


def address_of(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _text(buffer: Any, text: str) -> None:
    buffer.value = text.encode()


def _handle(library: FakeLibrary, index: Any, out: Any) -> int:
    code = library.gpus[index.value].errors.get("nvmlDeviceGetHandleByIndex_v2", 0)
    put_pointer(out, index.value + 1)
    return code


def _memory_v2(gpu: FakeGpu, out: Any) -> None:
    memory = out._obj
    assert memory.version == pynvml.nvmlMemory_v2
    memory.total, memory.reserved, memory.free, memory.used = gpu.memory


def _memory_v1(gpu: FakeGpu, out: Any) -> None:
    total, reserved, free, used = gpu.memory
    out._obj.total, out._obj.free, out._obj.used = total, free, used + reserved


def _utilization(gpu: FakeGpu, out: Any) -> None:
    out._obj.gpu, out._obj.memory = gpu.util


def _temperature_v(gpu: FakeGpu, out: Any) -> None:
    out._obj.temperature = gpu.temperature_c


def _processes(gpu: FakeGpu, count: Any, infos: Any) -> int:
    room = count._obj.value
    count._obj.value = len(gpu.processes)
    if room < len(gpu.processes):
        return INSUFFICIENT_SIZE
    for info, (pid, used) in zip(infos or (), gpu.processes, strict=False):
        info.pid, info.usedGpuMemory = pid, used
    return 0


def _pci(gpu: FakeGpu, out: Any) -> None:
    out._obj.busId = b"00000000:01:00.0"


def _mig(gpu: FakeGpu, current: Any, pending: Any) -> int:
    put(current, 1)
    return 0 if gpu.instances else NOT_SUPPORTED


def _mig_handle(gpu: FakeGpu, place: Any, out: Any) -> int:
    if place.value not in gpu.instances:
        return pynvml.NVML_ERROR_NOT_FOUND
    put_pointer(out, gpu.instances[place.value][1] + 1)
    return 0


def _instance_id(library: FakeLibrary, handle: Any, out: Any) -> int:
    own = address_of(handle) - 1
    numbers = [n for gpu in library.gpus for n, index in gpu.instances.values() if index == own]
    put(out, numbers[0])
    return 0


def _field_values(gpu: FakeGpu, count: Any, out: Any) -> None:
    for one in list(out._obj)[: count.value]:
        one.nvmlReturn = 0 if one.fieldId in gpu.throttled_ns else NOT_SUPPORTED
        one.value.ullVal = gpu.throttled_ns.get(one.fieldId, 0)


def _gpm_support(gpu: FakeGpu, out: Any) -> None:
    out._obj.isSupportedDevice = int(gpu.gpm is not None)


def _gpm_alloc(library: FakeLibrary, out: Any) -> int:
    address = 1000 + len(library.snapshots)
    library.snapshots[address] = (0.0, 0)
    put_pointer(out, address)
    return 0


def _gpm_free(library: FakeLibrary, snapshot: Any) -> int:
    del library.snapshots[address_of(snapshot)]
    return 0


def _gpm_get(library: FakeLibrary, handle: Any, snapshot: Any) -> int:
    index = address_of(handle) - 1
    gpu = library.gpus[index]
    library.snapshots[address_of(snapshot)] = (time.monotonic(), index)
    return gpu.errors.get("nvmlGpmSampleGet", gpu.errors.get("*", 0))


def _gpm_mig_get(library: FakeLibrary, handle: Any, number: int, snapshot: Any) -> int:
    split = library.gpus[address_of(handle) - 1]
    index = dict(split.instances.values())[number]
    library.snapshots[address_of(snapshot)] = (time.monotonic(), index)
    return 0


def _gpm_metrics(library: FakeLibrary, out: Any) -> int:
    ask = out._obj
    assert ask.version == pynvml.NVML_GPM_METRICS_GET_VERSION
    older, newer = (library.snapshots[address_of(one)] for one in (ask.sample1, ask.sample2))
    assert newer[0] - older[0] >= 0.1, "a window too short to hold values"
    gpu = library.gpus[newer[1]]
    for metric in list(ask.metrics)[: ask.numMetrics]:
        metric.nvmlReturn = gpu.gpm_returns.get(metric.metricId, 0)
        metric.value = (gpu.gpm or {}).get(metric.metricId, 0.0)
    return 0


LIBRARY: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": lambda library, flags: 0,
    "nvmlShutdown": lambda library: 0,
    "nvmlSystemGetDriverVersion": lambda library, text, size: _text(text, "580.1") or 0,
    "nvmlSystemGetNVMLVersion": lambda library, text, size: _text(text, "13.580.1") or 0,
    "nvmlDeviceGetCount_v2": lambda library, out: put(out, library.count) or 0,
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlGpmSampleAlloc": _gpm_alloc,
    "nvmlGpmSampleFree": _gpm_free,
    "nvmlGpmSampleGet": _gpm_get,
    "nvmlGpmMigSampleGet": _gpm_mig_get,
    "nvmlDeviceGetGpuInstanceId": _instance_id,
    "nvmlGpmMetricsGet": _gpm_metrics,
}
DEVICE: dict[str, Callable[..., int | None]] = {
    "nvmlDeviceGetName": lambda gpu, text, size: _text(text, gpu.name),
    "nvmlDeviceGetUUID": lambda gpu, text, size: _text(text, gpu.uuid),
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetMigMode": _mig,
    "nvmlDeviceGetMaxMigDeviceCount": lambda gpu, out: put(out, 7 if gpu.instances else 0),
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    "nvmlDeviceGetFieldValues": _field_values,
    "nvmlDeviceGetMemoryBusWidth": lambda gpu, out: put(out, gpu.bus_width),
    "nvmlDeviceGetMaxClockInfo": lambda gpu, kind, out: put(out, gpu.clocks[kind.value]),
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu, out: put(out, gpu.power_limits_mw[0]),
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu, out: put(out, gpu.power_limits_mw[1]),
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetMemoryInfo": _memory_v1,
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetPowerUsage": lambda gpu, out: put(out, gpu.power_mw),
    "nvmlDeviceGetTemperature": lambda gpu, kind, out: put(out, gpu.temperature_c),
    "nvmlDeviceGetTemperatureV": _temperature_v,
    "nvmlDeviceGetClockInfo": lambda gpu, kind, out: put(out, gpu.clocks[kind.value]),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu, out: put(out, gpu.reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu, out: put(out, gpu.reasons),
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu, out: put(out, gpu.energy_mj),
    "nvmlDeviceGetComputeRunningProcesses_v2": _processes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlGpmQueryDeviceSupport": _gpm_support,
}


@contextmanager
def driver(*gpus: FakeGpu, missing: set[str] | None = None) -> Iterator[FakeLibrary]:
    """The fake as the loaded library of the real bindings."""
    library = FakeLibrary(list(gpus), missing)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    before, pynvml.nvmlLib = pynvml.nvmlLib, library
    try:
        yield library
    finally:
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlLib = before
