"""GPM: how busy the SMs, tensor cores and DRAM really are, on Hopper and newer.

`util_gpu_pct` is 95 % for a pure copy and for a matrix product alike; these numbers tell the two
apart. Each is a mean over the time between two snapshots of the hardware's counters.
"""

import math
import time
from typing import Any

from target.nvml_reading import LOST, GpuLostError, Reading, error_name

# Percent of the theoretical maximum, and MiB/s for PCIe.
METRICS = {
    "graphics_active_pct": 1,
    "sm_active_pct": 2,
    "sm_occupancy_pct": 3,
    "tensor_active_pct": 5,
    "dram_active_pct": 10,
    "fp32_active_pct": 12,
    "fp16_active_pct": 13,
    "pcie_tx_mib_s": 20,
    "pcie_rx_mib_s": 21,
}

# The driver refreshes its counters each 100 ms (nvml.h); a shorter window gives NaN or zeros.
SHORTEST_WINDOW_S = 0.1


class GpmWindow:
    """The moving pair of snapshots of one GPU; `close` it before nvmlShutdown."""

    def __init__(self, nvml: Any, gpu: Any, instance: int | None = None) -> None:
        """Take the first snapshot; `instance` is a MIG instance of the GPU.

        Raises:
            NVMLError: the driver has no GPM, or not for this GPU (MIG, vGPU).
        """
        self._nvml, self._gpu, self._instance = nvml, gpu, instance
        self._older = nvml.nvmlGpmSampleAlloc()
        try:
            self._newer = nvml.nvmlGpmSampleAlloc()
            self._snap(self._older)
        except nvml.NVMLError:
            self.close()
            raise
        self._taken_s = time.monotonic()
        self._ask = nvml.c_nvmlGpmMetricsGet_t()
        self._ask.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._ask.numMetrics = len(METRICS)
        for slot, metric in enumerate(METRICS.values()):
            self._ask.metrics[slot].metricId = metric

    def read(self) -> Reading:
        """Values since the last read; nothing while the window is too short to hold any.

        Raises:
            GpuLostError: the GPU is gone.
        """
        if time.monotonic() - self._taken_s < SHORTEST_WINDOW_S:
            return Reading({}, {})
        try:
            self._snap(self._newer)
            self._taken_s = time.monotonic()
            self._ask.sample1, self._ask.sample2 = self._older, self._newer
            self._nvml.nvmlGpmMetricsGet(self._ask)
        except self._nvml.NVMLError as failure:
            error = error_name(failure)
            if error in LOST:
                raise GpuLostError(error) from None
            return Reading(dict.fromkeys(METRICS), dict.fromkeys(METRICS, error))
        self._older, self._newer = self._newer, self._older
        return self._checked()

    def _snap(self, snapshot: Any) -> None:
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._gpu, snapshot)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._gpu, self._instance, snapshot)

    def close(self) -> None:
        """Free both snapshots; harmless when the GPU is gone."""
        for name in ("_older", "_newer"):
            sample = getattr(self, name, None)
            if sample is None:
                continue
            setattr(self, name, None)
            try:
                self._nvml.nvmlGpmSampleFree(sample)
            except self._nvml.NVMLError:
                continue

    def _checked(self) -> Reading:
        """Each metric has a return code of its own, and may be NaN even where that is 0."""
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for slot, name in enumerate(METRICS):
            metric = self._ask.metrics[slot]
            values[name] = None
            if metric.nvmlReturn != self._nvml.NVML_SUCCESS:
                errors[name] = error_name(self._nvml.NVMLError(metric.nvmlReturn))
            elif not math.isfinite(metric.value):
                errors[name] = "NaN"
            else:
                values[name] = round(metric.value, 3)
        return Reading(values, errors)


def open_window(
    nvml: Any, gpu: Any, instance: int | None = None
) -> tuple[GpmWindow | None, str | None]:
    """A window onto one GPU, or why there is none: an error's name, or that the GPU is too old."""
    try:
        if not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            return None, "not on this GPU"
        return GpmWindow(nvml, gpu, instance), None
    except nvml.NVMLError as failure:
        return None, error_name(failure)
