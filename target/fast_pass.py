"""The pass of every beat: each question's C function, arguments and answer made ready once.

The bindings make a struct, look the function up and check the code at each call. After half a
second of sleep the caches are cold, and that Python costs more than the driver does (127 us against
30 us where the driver costs nothing). What a field means and how it fails is as in nvml_reading.
"""

from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from dataclasses import dataclass
from functools import partial
from typing import Any

from target.nvml_reading import (
    LOST,
    MIB,
    GpuLostError,
    Reading,
    Values,
    error_name,
)

Call = Callable[[], int]  # returns NVML's code
Take = Callable[[], Values]


@dataclass(frozen=True, slots=True)
class Way:
    """One function to ask, and how its answer becomes values."""

    call: Call
    take: Take


@dataclass(frozen=True, slots=True)
class Question:
    """Names that one question answers, and ways to ask it: newest first, old drivers' after it."""

    names: tuple[str, ...]
    ways: tuple[Way, ...]


NAMES = (
    "util_gpu_pct",
    "util_mem_pct",
    "mem_used_mib",
    "mem_reserved_mib",
    "power_w",
    "temperature_c",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "clocks_event_reasons",
)


class FastPass:
    """Questions to one GPU: utilisation, memory, power, temperature, clocks."""

    def __init__(self, nvml: Any, gpu: Any) -> None:
        """Make the calls ready; nothing is asked yet."""
        self._nvml = nvml
        self._answers = answers = _Answers(nvml)
        self._questions = _questions(nvml, gpu, answers)
        # Where every newest way works, all are asked in one go, and read in another.
        self._calls = [question.ways[0].call for question in self._questions]
        self._all_work = True

    def read(self) -> Reading:
        """Ask everything once.

        Raises:
            GpuLostError: the GPU is gone.
        """
        if self._all_work:
            if not any([call() for call in self._calls]):
                return Reading(self._answers.values(), {})
            self._all_work = False
        values: Values = {}
        errors: dict[str, str] = {}
        for question in self._questions:
            code = 0
            for way in question.ways:
                failed = way.call()
                if failed:
                    code = failed
                    continue
                values.update(way.take())
                break
            else:
                values.update(dict.fromkeys(question.names))
            if code:
                self._note(question, code, values, errors)
        return Reading(values, errors)

    def _note(self, question: Question, code: int, values: Values, errors: dict[str, str]) -> None:
        error = error_name(self._nvml.NVMLError(code))
        if error in LOST:
            raise GpuLostError(error)
        # Where the old way answers less, what it lacks failed for the new way's reason.
        for name in question.names:
            if values.setdefault(name, None) is None:
                errors[name] = error


class _Answers:
    """The structs that the driver writes into."""

    def __init__(self, nvml: Any) -> None:
        self.util = nvml.c_nvmlUtilization_t()
        self.memory, self.old_memory = nvml.c_nvmlMemory_v2_t(), nvml.c_nvmlMemory_t()
        self.memory.version = nvml.nvmlMemory_v2
        self.heat = nvml.c_nvmlTemperature_v1_t()
        self.heat.version, self.heat.sensorType = nvml.nvmlTemperature_v1, nvml.NVML_TEMPERATURE_GPU
        self.power, self.old_heat, self.sm, self.mem = c_uint(), c_uint(), c_uint(), c_uint()
        self.reasons = c_ulonglong()

    def values(self) -> Values:
        """All of them, as the newest ways answer."""
        util, memory = self.util, self.memory
        return {
            "util_gpu_pct": util.gpu,
            "util_mem_pct": util.memory,
            "mem_used_mib": round(memory.used / MIB, 3),
            "mem_reserved_mib": round(memory.reserved / MIB, 3),
            "power_w": self.power.value / 1000,
            "temperature_c": self.heat.temperature,
            "sm_clock_mhz": self.sm.value,
            "mem_clock_mhz": self.mem.value,
            "clocks_event_reasons": self.reasons.value,
        }


def _questions(nvml: Any, gpu: Any, answers: _Answers) -> tuple[Question, ...]:
    def newest(function: str, *arguments: Any, names: tuple[str, ...]) -> Way:
        call = _call(nvml, function, gpu, *arguments)

        def take() -> Values:
            told = answers.values()
            return {name: told[name] for name in names}

        return Way(call, take)

    def older(function: str, *arguments: Any, take: Take) -> Way:
        return Way(_call(nvml, function, gpu, *arguments), take)

    def one(
        function: str, *arguments: Any, names: tuple[str, ...], then: tuple[Way, ...] = ()
    ) -> Question:
        return Question(names, (newest(function, *arguments, names=names), *then))

    a = answers
    old_memory = older(
        "nvmlDeviceGetMemoryInfo",
        byref(a.old_memory),
        # Here `used` includes the driver's own part, which only v2 tells apart.
        take=lambda: {"mem_used_mib": round(a.old_memory.used / MIB, 3)},
    )
    old_heat = older(
        "nvmlDeviceGetTemperature",
        c_uint(nvml.NVML_TEMPERATURE_GPU),
        byref(a.old_heat),
        take=lambda: {"temperature_c": a.old_heat.value},
    )
    old_reasons = older(
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        byref(a.reasons),
        take=lambda: {"clocks_event_reasons": a.reasons.value},
    )
    return (
        one("nvmlDeviceGetUtilizationRates", byref(a.util), names=NAMES[0:2]),
        one("nvmlDeviceGetMemoryInfo_v2", byref(a.memory), names=NAMES[2:4], then=(old_memory,)),
        one("nvmlDeviceGetPowerUsage", byref(a.power), names=("power_w",)),
        one("nvmlDeviceGetTemperatureV", byref(a.heat), names=("temperature_c",), then=(old_heat,)),
        one("nvmlDeviceGetClockInfo", c_uint(nvml.NVML_CLOCK_SM), byref(a.sm),
            names=("sm_clock_mhz",)),
        one("nvmlDeviceGetClockInfo", c_uint(nvml.NVML_CLOCK_MEM), byref(a.mem),
            names=("mem_clock_mhz",)),
        one("nvmlDeviceGetCurrentClocksEventReasons", byref(a.reasons),
            names=("clocks_event_reasons",), then=(old_reasons,)),
    )  # fmt: skip


def _call(nvml: Any, name: str, *arguments: Any) -> Call:
    """The function by name with its arguments; one that the driver lacks fails with that code."""
    try:
        function = getattr(nvml.nvmlLib, name)
    except AttributeError:
        return lambda: int(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return partial(function, *arguments)
