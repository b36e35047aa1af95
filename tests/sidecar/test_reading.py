"""One pass over a GPU, through the real bindings: units, fallbacks, and errors that stay errors."""

import math
import time

import pynvml
import pytest

from target import fast_pass, gpm, nvml_reading
from target.gpu_sampler import Found, find_gpus, header, is_back, lost, on_beat, sample, stop
from target.nvml_reading import GpuLostError
from tests.sidecar.fake_nvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeGpu,
    driver,
)

LOAD = {1: 92.0, 2: 89.4, 3: 18.0, 5: 76.25, 10: 86.0, 12: 1.0, 13: 0.0, 20: 5.0, 21: 6.0}


def first_sample(found: Found, index: int = 0) -> dict[str, object]:
    return sample(found.nvml, found.gpus[index], slow=True, with_gpm=True)[0]


def unsupported(found: Found, index: int = 0) -> dict[str, str]:
    """What the header says of a GPU, less what an ordinary GPU lacks anyway."""
    fields = dict(found.about[index]["unsupported"])
    return {name: error for name, error in fields.items() if name not in ("gpm", "mig")}


def test_every_value_arrives_in_the_unit_of_its_name() -> None:
    with driver(FakeGpu()):
        got = first_sample(find_gpus())
    assert {key: got[key] for key in got if not key.startswith("t_") and key != "pass_us"} == {
        "type": "sample",
        "gpu": 0,
        "util_gpu_pct": 31,
        "util_mem_pct": 12,
        "mem_used_mib": 300.0,
        "mem_reserved_mib": 100.0,
        "power_w": 123.456,
        "temperature_c": 41,
        "sm_clock_mhz": 1980,
        "mem_clock_mhz": 3201,
        "clocks_event_reasons": 4,
        "energy_j": 7654.321,
        "processes": [{"pid": 4242, "mem_mib": 256.0}],
    }


def test_throttled_time_is_counted_by_cause_on_the_slowest_beat() -> None:
    counters = {74: 1_500_000_000, 269: 20_000_000, 270: 0}  # no power brake counter
    with driver(FakeGpu(throttled_ns=counters)):
        found = find_gpus()
        usual = sample(found.nvml, found.gpus[0], slow=True, with_gpm=True)[0]
        got = sample(found.nvml, found.gpus[0], slow=True, with_gpm=True, slowest=True)[0]
    assert "throttled_power_s" not in usual
    assert (got["throttled_power_s"], got["throttled_sw_thermal_s"]) == (1.5, 0.02)
    assert got["throttled_brake_s"] is None
    assert unsupported(found) == {"throttled_brake_s": "NVMLError_NotSupported"}


def test_mig_instances_are_sampled_under_their_own_names() -> None:
    split = FakeGpu(instances={0: (5, 1), 3: (9, 2)}, gpm=LOAD)
    first = FakeGpu(name="Fake H200 MIG 1g.18gb", uuid="MIG-1", gpm={**LOAD, 10: 11.0})
    second = FakeGpu(name="Fake H200 MIG 3g.71gb", uuid="MIG-2", gpm={**LOAD, 10: 33.0})
    first.errors["nvmlDeviceGetUtilizationRates"] = NOT_SUPPORTED
    with driver(split, first, second):
        found = find_gpus()
        time.sleep(0.12)
        dram = [first_sample(found, index)["dram_active_pct"] for index in range(3)]
        stop(found)
    assert [about["name"] for about in found.about] == [split.name, first.name, second.name]
    assert [about["index"] for about in found.about] == [0, 1, 2]
    assert [(about.get("mig_of"), about.get("gpu_instance")) for about in found.about] == [
        (None, None),
        (0, 5),
        (0, 9),
    ]
    assert dram == [86.0, 11.0, 33.0]
    assert found.about[1]["unsupported"]["util_gpu_pct"] == "NVMLError_NotSupported"


def test_the_header_names_the_gpu_and_its_peak_bandwidth() -> None:
    with driver(FakeGpu(), FakeGpu(name="Other", uuid="GPU-1")):
        found = find_gpus()
        record = header(found, 0.5)
    assert record["unavailable"] is None
    assert (record["driver"], record["nvml_version"]) == ("580.1", "13.580.1")
    first, second = record["gpus"]
    assert (first["index"], first["name"], second["index"], second["name"]) == (
        0,
        "Fake H200",
        1,
        "Other",
    )
    assert first["peak_bandwidth_gb_s"] == 4814.3  # 6016 bit x 3201 MHz x 2 / 8
    assert first["memory_total_mib"] == 1000.0
    assert (first["power_limit_w"], first["default_power_limit_w"]) == (500.0, 700.0)
    assert first["pci_bus_id"] == "00000000:01:00.0"
    assert first["unsupported"] == {"mig": "NVMLError_NotSupported", "gpm": "not on this GPU"}


def test_a_stamp_is_taken_inside_the_pass_on_both_clocks() -> None:
    with driver(FakeGpu()):
        found = find_gpus()
        wall, mono = time.time_ns(), time.monotonic_ns()
        got = first_sample(found)
        assert mono <= got["t_mono_ns"] <= time.monotonic_ns()
        assert wall <= got["t_wall_ns"] <= time.time_ns()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("nvmlDeviceGetUtilizationRates", ["util_gpu_pct", "util_mem_pct"]),
        ("nvmlDeviceGetPowerUsage", ["power_w"]),
        ("nvmlDeviceGetClockInfo", ["sm_clock_mhz", "mem_clock_mhz"]),
        ("nvmlDeviceGetTotalEnergyConsumption", ["energy_j"]),
    ],
)
def test_an_unsupported_field_is_none_and_named_once_in_the_header(
    function: str, names: list[str]
) -> None:
    with driver(FakeGpu(errors={function: NOT_SUPPORTED})):
        found = find_gpus()
        records = sample(found.nvml, found.gpus[0], slow=True, with_gpm=True)
    assert unsupported(found) == dict.fromkeys(names, "NVMLError_NotSupported")
    assert len(records) == 1, "no event for what the header says already"
    assert [records[0][name] for name in names] == [None] * len(names)
    others = {key: value for key, value in records[0].items() if key not in names}
    assert None not in others.values()


def test_a_function_that_the_driver_lacks_is_an_error_with_a_name() -> None:
    with driver(FakeGpu(), missing={"nvmlDeviceGetPowerUsage"}):
        found = find_gpus()
        assert first_sample(found)["power_w"] is None
    assert unsupported(found) == {"power_w": "NVMLError_FunctionNotFound"}


def test_an_old_driver_is_asked_by_its_old_names() -> None:
    newer = {
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    }
    with driver(FakeGpu(), missing=newer):
        found = find_gpus()
        got = first_sample(found)
    assert got["temperature_c"] == 41
    assert got["clocks_event_reasons"] == 4
    assert got["processes"] == [{"pid": 4242, "mem_mib": 256.0}]
    # v1 counts the driver's own 100 MiB as used, and the header says that it cannot tell.
    assert (got["mem_used_mib"], got["mem_reserved_mib"]) == (400.0, None)
    assert unsupported(found) == {"mem_reserved_mib": "NVMLError_FunctionNotFound"}


def test_a_gpu_split_by_mig_loses_utilization_and_processes_only() -> None:
    split = {
        "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED,
        "nvmlDeviceGetComputeRunningProcesses_v3": NO_PERMISSION,
        "nvmlDeviceGetComputeRunningProcesses_v2": NO_PERMISSION,
    }
    with driver(FakeGpu(errors=split), FakeGpu()):
        found = find_gpus()
        got = first_sample(found)
        assert unsupported(found, 1) == {}
    assert (got["util_gpu_pct"], got["processes"], got["power_w"]) == (None, None, 123.456)
    assert unsupported(found)["processes"] == "NVMLError_NoPermission"


def test_no_process_is_an_empty_list_and_an_unknown_size_is_none() -> None:
    unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    with driver(FakeGpu(processes=[]), FakeGpu(processes=[(7, unknown)])):
        found = find_gpus()
        assert first_sample(found, 0)["processes"] == []
        assert first_sample(found, 1)["processes"] == [{"pid": 7, "mem_mib": None}]


def test_a_field_that_fails_later_is_an_event_once_and_returns_with_its_value() -> None:
    gpu = FakeGpu()
    with driver(gpu):
        found = find_gpus()

        def beat() -> list[dict[str, object]]:
            return sample(found.nvml, found.gpus[0], slow=False, with_gpm=False)

        assert len(beat()) == 1
        gpu.errors["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_UNKNOWN
        failed, event = beat()
        assert failed["power_w"] is None
        assert (event["type"], event["gpu"]) == ("event", 0)
        assert (event["field"], event["error"]) == ("power_w", "NVMLError_Unknown")
        assert len(beat()) == 1
        gpu.errors.clear()
        assert beat()[0]["power_w"] == 123.456


def test_an_error_code_without_a_name_keeps_its_number() -> None:
    with driver(FakeGpu(errors={"nvmlDeviceGetPowerUsage": 777})):
        assert unsupported(find_gpus()) == {"power_w": "NVMLError_777"}


def test_energy_and_processes_are_not_asked_on_a_fast_beat() -> None:
    with driver(FakeGpu()) as library:
        found = find_gpus()
        library.asked.clear()
        got = sample(found.nvml, found.gpus[0], slow=False, with_gpm=False)[0]
    assert "energy_j" not in got
    assert "processes" not in got
    assert not {name for name in library.asked if "Energy" in name or "Processes" in name}


def test_a_lost_gpu_is_no_sample() -> None:
    gpu = FakeGpu()
    with driver(gpu):
        found = find_gpus()
        gpu.errors["*"] = GPU_IS_LOST
        with pytest.raises(GpuLostError, match=r"^NVMLError_GpuIsLost$"):
            sample(found.nvml, found.gpus[0], slow=True, with_gpm=True)


def test_a_gpu_that_is_back_is_sampled_again_with_all_its_counters() -> None:
    gpu = FakeGpu(gpm=LOAD)
    with driver(gpu) as library:
        found = find_gpus()
        [ours] = found.gpus
        gpu.errors["*"] = GPU_IS_LOST
        with pytest.raises(GpuLostError) as caught:
            sample(found.nvml, ours, slow=True, with_gpm=True)
        lost(ours, caught.value)
        assert not is_back(found.nvml, ours)
        gpu.errors = {"nvmlDeviceGetHandleByIndex_v2": GPU_IS_LOST}
        assert not is_back(found.nvml, ours)
        gpu.errors = {}
        assert is_back(found.nvml, ours)
        time.sleep(gpm.SHORTEST_WINDOW_S * 1.1)
        again = first_sample(found)
        assert again["util_gpu_pct"] == gpu.util[0]
        assert again["sm_active_pct"] == LOAD[2]
        stop(found)
        assert library.snapshots == {}


def test_a_gpu_that_cannot_be_opened_leaves_the_others() -> None:
    broken = FakeGpu(errors={"nvmlDeviceGetHandleByIndex_v2": NO_PERMISSION})
    with driver(FakeGpu(errors={"*": GPU_IS_LOST}), broken, FakeGpu(name="Good")):
        found = find_gpus()
        assert [gpu.index for gpu in found.gpus] == [2]
        assert first_sample(found)["gpu"] == 2
    assert found.unavailable is None
    assert [about["unsupported"].get("gpu") for about in found.about] == [
        "NVMLError_GpuIsLost",
        "NVMLError_NoPermission",
        None,
    ]


def test_a_driver_without_gpus_is_unavailable_and_not_silent() -> None:
    with driver():
        assert find_gpus().unavailable == "no GPU"
    with driver(FakeGpu(errors={"*": GPU_IS_LOST})):
        assert find_gpus().unavailable == "none of 1 GPUs can be read"


def test_gpm_tells_a_copy_from_a_matrix_product() -> None:
    with driver(FakeGpu(gpm=LOAD)) as library:
        found = find_gpus()
        assert found.about[0]["gpm"] is True
        time.sleep(gpm.SHORTEST_WINDOW_S * 1.1)
        got = first_sample(found)
        assert {name: got[name] for name in gpm.METRICS} == {
            name: LOAD[metric] for name, metric in gpm.METRICS.items()
        }
        assert len(library.snapshots) == 2
        stop(found)
        assert library.snapshots == {}, "snapshots are freed before nvmlShutdown"


def test_gpm_is_left_out_while_its_window_is_too_short() -> None:
    with driver(FakeGpu(gpm=LOAD)):
        got = first_sample(find_gpus())
    assert not set(gpm.METRICS) & set(got)


def test_a_gpm_metric_fails_alone_by_its_return_code_or_as_nan() -> None:
    gpu = FakeGpu(gpm=LOAD | {10: math.nan}, gpm_returns={5: NOT_SUPPORTED})
    with driver(gpu):
        found = find_gpus()
        time.sleep(gpm.SHORTEST_WINDOW_S * 1.1)
        got = first_sample(found)
    assert (got["dram_active_pct"], got["tensor_active_pct"]) == (None, None)
    assert got["sm_active_pct"] == 89.4
    assert unsupported(found) == {
        "dram_active_pct": "NaN",
        "tensor_active_pct": "NVMLError_NotSupported",
    }


def test_gpm_that_cannot_take_snapshots_is_named_and_frees_what_it_took() -> None:
    gpu = FakeGpu(gpm=LOAD, errors={"nvmlGpmSampleGet": NOT_SUPPORTED})
    with driver(gpu) as library:
        about = find_gpus().about[0]
        assert library.snapshots == {}
    assert about["gpm"] is False
    assert about["unsupported"]["gpm"] == "NVMLError_NotSupported"


@pytest.mark.parametrize(
    ("every_s", "period_s", "share"), [(1.0, 0.5, 2), (0.2, 0.05, 4), (1, 2, 1)]
)
def test_a_slower_beat_falls_on_every_nth(every_s: float, period_s: float, share: int) -> None:
    falls = [on_beat(beat, beat - 1, every_s, period_s) for beat in range(3 * share)]
    assert falls == [beat % share == 0 for beat in range(3 * share)]


def test_a_slower_beat_that_was_missed_falls_on_the_next_one_kept() -> None:
    assert on_beat(21, 18, 1.0, 0.05)
    assert not on_beat(19, 18, 1.0, 0.05)


def test_every_field_is_documented_by_the_reader() -> None:
    from slo.gpu_log import GpuSample

    slower = nvml_reading.SLOW + nvml_reading.SLOWEST
    asked = {*fast_pass.NAMES, *(name for one in slower for name in one.names)}
    assert asked | set(gpm.METRICS) | {"at_s", "gpu"} == set(GpuSample.__dataclass_fields__)
