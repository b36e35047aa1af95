"""The newest sample of each GPU as Prometheus metrics, under the names and units of dcgm-exporter.

What NVML does not give is absent, never 0. Ratios are 0 to 1, as DCGM has them since it reads the
same counters through NVML. Our own names begin with tailgate_.
"""

import socket
from collections.abc import Iterator, Mapping
from typing import Any

from target.clock_reasons import SLOWED
from target.gpu_sampler import Found
from target.nvml_reading import MIB, Values


class Latest:
    """What was sampled last, by GPU; one thread writes, any may read."""

    def __init__(self, found: Found) -> None:
        self.about = {about["index"]: about for about in found.about}
        self.samples: dict[int, Values] = {}
        self.passes = 0

    def see(self, record: Values) -> None:
        """Take a record: a sample adds to what is known, a lost GPU is forgotten."""
        gpu = record.get("gpu")
        if record["type"] == "sample" and isinstance(gpu, int):
            self.passes += 1
            # Slow beats bring what the others leave out: it stays until it is asked again.
            self.samples[gpu] = {**self.samples.get(gpu, {}), **record}
        elif record["type"] == "event" and record.get("field") == "gpu" and isinstance(gpu, int):
            self.samples.pop(gpu, None)


# Name, help, key of the sample, factor.
GAUGES = (
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "util_gpu_pct", 1),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "util_mem_pct", 1),
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "mem_used_mib", 1),
    ("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "mem_reserved_mib", 1),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power_w", 1),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "temperature_c", 1),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "sm_clock_mhz", 1),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "mem_clock_mhz", 1),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Bit mask of NVML.", "clocks_event_reasons", 1),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of active time.", "graphics_active_pct", 0.01),
    ("DCGM_FI_PROF_SM_ACTIVE", "Ratio of cycles with a warp.", "sm_active_pct", 0.01),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "Ratio of resident warps.", "sm_occupancy_pct", 0.01),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of tensor cycles.", "tensor_active_pct", 0.01),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of memory cycles.", "dram_active_pct", 0.01),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "Ratio of fp32 cycles.", "fp32_active_pct", 0.01),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "Ratio of fp16 cycles.", "fp16_active_pct", 0.01),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "Bytes/s sent over PCIe.", "pcie_tx_mib_s", MIB),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "Bytes/s received over PCIe.", "pcie_rx_mib_s", MIB),
    # A counter in dcgm-exporter; the client library would add _total to one's name.
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since driver load (in mJ).", "energy_j", 1000),
)  # fmt: skip
_COUNTERS = {
    "throttled_power_s": "power cap",
    "throttled_sw_thermal_s": "software thermal limit",
    "throttled_hw_thermal_s": "hardware thermal limit",
    "throttled_brake_s": "power brake",
}


class Collector:
    """Makes the families anew at each scrape, for a prometheus_client registry."""

    def __init__(self, latest: Latest) -> None:
        self._latest, self._host = latest, socket.gethostname()

    def collect(self) -> Iterator[Any]:
        """All families that have a value."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        samples = dict(self._latest.samples)
        labels = {gpu: self._labels(gpu) for gpu in samples}
        names = list(self._labels(0))
        free = {gpu: {"free": self._free(gpu, sample)} for gpu, sample in samples.items()}
        gauges = [(*gauge, samples) for gauge in GAUGES]
        gauges.append(("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "free", 1, free))
        for name, text, key, factor, values in gauges:
            family = GaugeMetricFamily(name, text, labels=names)
            for gpu, sample in values.items():
                if sample.get(key) is not None:
                    family.add_metric(list(labels[gpu].values()), sample[key] * factor)
            if family.samples:
                yield family
        now = GaugeMetricFamily(
            "tailgate_gpu_throttled", "1 while NVML says so.", labels=[*names, "reason"]
        )
        ever = CounterMetricFamily(
            "tailgate_gpu_throttled_seconds", "Time slowed down.", labels=[*names, "reason"]
        )
        for gpu, sample in samples.items():
            mask = sample.get("clocks_event_reasons")
            if mask is not None:
                for bit, cause in SLOWED.items():
                    now.add_metric([*labels[gpu].values(), cause], float(bool(mask & bit)))
            for key, cause in _COUNTERS.items():
                if sample.get(key) is not None:
                    ever.add_metric([*labels[gpu].values(), cause], sample[key])
        yield from (family for family in (now, ever) if family.samples)
        passes = CounterMetricFamily("tailgate_sidecar_samples", "Samples taken of all GPUs.")
        passes.add_metric([], self._latest.passes)
        yield passes

    def _labels(self, gpu: int) -> Mapping[str, str]:
        """dcgm-exporter's; of a MIG instance with its GPU's number and its own."""
        about = self._latest.about.get(gpu, {})
        parent, instance = about.get("mig_of"), about.get("gpu_instance")
        number = str(gpu if parent is None else parent)
        return {
            "gpu": number,
            "UUID": str(about.get("uuid") or ""),
            "pci_bus_id": str(about.get("pci_bus_id") or ""),
            "device": f"nvidia{number}",
            "modelName": str(about.get("name") or ""),
            "hostname": self._host,
            "GPU_I_ID": "" if instance is None else str(instance),
        }

    def _free(self, gpu: int, sample: Values) -> float | None:
        total = self._latest.about.get(gpu, {}).get("memory_total_mib")
        used, reserved = sample.get("mem_used_mib"), sample.get("mem_reserved_mib")
        if total is None or used is None:
            return None
        return float(round(total - used - (reserved or 0.0), 3))


def serve(latest: Latest, host: str, port: int) -> int:
    """Answer GET /metrics in a thread that ends with the process; returns the port.

    Raises:
        OSError: the address cannot be bound.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(Collector(latest))
    server, _ = start_http_server(port, addr=host, registry=registry)
    return int(server.server_port)
