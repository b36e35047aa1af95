"""What each part of a sidecar's pass costs on a real GPU, after half a second of sleep.

python -m tests.gpu.sidecar_parts [SECONDS]
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

from target import gpu_sampler, nvml_reading


def cost_us(
    work: Callable[[], object], beats: int, before: Callable[[], object]
) -> dict[str, float]:
    """Median and mean CPU microseconds of a piece of work on a beat of 0.5 s."""
    walls, cpus = [], []
    for _ in range(beats):
        time.sleep(0.5)
        before()
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        work()
        walls.append((time.perf_counter_ns() - wall) / 1e3)
        cpus.append((time.thread_time_ns() - cpu) / 1e3)
    return {"wall": round(statistics.median(walls)), "cpu": round(statistics.fmean(cpus))}


def main() -> None:
    beats = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    found = gpu_sampler.find_gpus()
    assert found.gpus, found.unavailable
    nvml, gpu = found.nvml, found.gpus[0]

    def nothing() -> None:
        pass

    def wake() -> None:
        nvml.nvmlDeviceGetPowerUsage(gpu.handle)

    def slow(fields: tuple[nvml_reading.Field, ...]) -> Callable[[], object]:
        return lambda: nvml_reading.read(nvml, gpu.handle, fields)

    parts: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "fast": (gpu.fast.read, nothing),
        "fast, after a call": (gpu.fast.read, wake),
        "fast, after itself": (gpu.fast.read, gpu.fast.read),
        "gpm": (gpu.window.read if gpu.window else nothing, nothing),
        "energy, processes": (slow(nvml_reading.SLOW), nothing),
        "throttled time": (slow(nvml_reading.SLOWEST), nothing),
    }
    told = {name: cost_us(work, beats, before) for name, (work, before) in parts.items()}
    gpu_sampler.stop(found)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
