"""gpu.jsonl read back: whatever a crash, a restart or another host left in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from slo.gpu_log import Clock, GpuLog, offset_at, read_gpu_log
from slo.rundir import RunDirError

S = 1_000_000_000
T0_MONO = 500 * S
T0_WALL = 1_800_000_000 * S

HEADER = {
    "type": "header",
    "schema": "1.0",
    "host": "gpu-host",
    "pid": 7,
    "period_s": 0.5,
    "t_wall_ns": T0_WALL,
    "t_mono_ns": T0_MONO,
    "driver": "580.1",
    "unavailable": None,
    "gpus": [
        {"index": 0, "name": "Fake H200", "unsupported": {"power_w": "NVMLError_NotSupported"}}
    ],
}


def sample(at_s: float, **more: Any) -> dict[str, Any]:
    at_ns = round(at_s * S)
    stamps = {"t_wall_ns": T0_WALL + at_ns, "t_mono_ns": T0_MONO + at_ns}
    return {"type": "sample", "gpu": 0, **stamps, "util_gpu_pct": 31, "power_w": None, **more}


def clock(at_s: float, offset_s: float, bound_s: float = 0.001) -> dict[str, Any]:
    return {
        "type": "clock",
        "t_wall_ns": T0_WALL + round(at_s * S),
        "offset_ns": round(offset_s * S),
        "bound_ns": round(bound_s * S),
    }


def log_of(path: Path, *lines: dict[str, Any], tail: str = "", **axis: int) -> GpuLog:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return read_gpu_log(path, t0_mono_ns=T0_MONO, t0_wall_ns=T0_WALL, **axis)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpu.jsonl"


def test_samples_lie_on_the_runs_axis_and_none_stays_none(path: Path) -> None:
    processes = [{"pid": 4, "mem_mib": 1.5}]
    log = log_of(path, HEADER, sample(-1.0), sample(2.5, energy_j=7.0, processes=processes))
    assert log.unavailable is None
    assert [one.at_s for one in log.samples] == [-1.0, 2.5]
    early, late = log.samples
    assert (early.util_gpu_pct, early.power_w, early.energy_j, early.processes) == (
        31,
        None,
        None,
        None,
    )
    assert late.processes is not None
    assert (late.energy_j, late.processes[0].pid, late.processes[0].mem_mib) == (7.0, 4, 1.5)
    assert log.gpus[0].unsupported == {"power_w": "NVMLError_NotSupported"}


def test_a_missing_file_and_an_empty_one_are_not_measured(path: Path) -> None:
    missing = read_gpu_log(path, t0_mono_ns=0, t0_wall_ns=0)
    assert missing == GpuLog("no sidecar ran")
    assert "no header" in str(log_of(path).unavailable)
    assert log_of(path, HEADER).unavailable == "the sidecar wrote no sample"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("NVMLError_LibraryNotFound: NVML Shared Library Not Found", "no NVML library"),
        ("NVMLError_DriverNotLoaded: Driver Not Loaded", "no NVIDIA driver loaded"),
        ("no pynvml package (pip install 'x')", "no pynvml package (pip install 'x')"),
    ],
)
def test_why_there_is_nothing_is_said_in_words(path: Path, said: str, read: str) -> None:
    log = log_of(path, {**HEADER, "unavailable": said, "gpus": []})
    assert (log.unavailable, log.samples, log.gpus) == (read, (), ())


def test_a_line_that_a_crash_cut_off_is_left_out(path: Path) -> None:
    log = log_of(path, HEADER, sample(1), tail='{"type": "sample", "gpu": 0, "t_w')
    assert [one.at_s for one in log.samples] == [1.0]


def test_a_restart_without_a_gpu_keeps_the_samples_before_it(path: Path) -> None:
    gone = {**HEADER, "pid": 8, "unavailable": "NVMLError_DriverNotLoaded: x", "gpus": []}
    log = log_of(path, HEADER, sample(1), gone)
    assert log.unavailable is None
    assert [header.pid for header in log.headers] == [7, 8]
    assert log.gpus[0].name == "Fake H200"


def test_keys_and_types_of_a_later_version_are_ignored(path: Path) -> None:
    log = log_of(path, {**HEADER, "schema": "1.9"}, sample(1, new_pct=5), {"type": "new"})
    assert len(log.samples) == 1


def test_an_unknown_schema_is_refused_by_name(path: Path) -> None:
    with pytest.raises(RunDirError, match=r"gpu\.jsonl: schema '2\.0' is unknown here"):
        log_of(path, {**HEADER, "schema": "2.0"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (sample(1, util_gpu_pct="much"), r":2: util_gpu_pct: .* not 'much'"),
        ({"type": "sample", "gpu": 0}, r":2: t_wall_ns or t_mono_ns is missing"),
        ({**sample(1), "gpu": None}, r":2: gpu: "),
    ],
)
def test_a_line_that_is_no_sample_names_file_and_line(
    path: Path, line: dict[str, Any], says: str
) -> None:
    with pytest.raises(RunDirError, match=rf"gpu\.jsonl{says}"):
        log_of(path, HEADER, line)


def test_a_list_is_no_line_of_the_log(path: Path) -> None:
    with pytest.raises(RunDirError, match=r"gpu\.jsonl:1: a line of the GPU log is an object"):
        log_of(path, tail="[1]\n")


def test_another_hosts_samples_move_by_its_clock(path: Path) -> None:
    # Its clock is 100 s ahead; its monotonic clock has nothing to do with ours.
    theirs = {**sample(102.5), "t_mono_ns": 1}
    log = log_of(path, HEADER, clock(0, 100.0), theirs, clock(60, 100.0))
    assert [one.at_s for one in log.samples] == [2.5]
    assert [one.offset_ns for one in log.clocks] == [100 * S, 100 * S]


def test_a_clock_that_drifts_is_followed_between_its_measurements(path: Path) -> None:
    # Over our 0..100 s it gains 1 s: at our 50 s it is 0.5 s ahead.
    log = log_of(path, HEADER, clock(0, 0.0), sample(0), sample(50.5), sample(101), clock(100, 1.0))
    assert [one.at_s for one in log.samples] == pytest.approx([0.0, 50.0, 100.0], abs=0.006)


def test_outside_its_measurements_a_clock_does_not_run_on() -> None:
    both = (Clock(100 * S, 1 * S, 0), Clock(200 * S, 2 * S, 0))
    assert offset_at(both, 0) == 1 * S
    assert offset_at(both, 10_000 * S) == 2 * S
    assert offset_at(both[:1], 10_000 * S) == 1 * S


def test_an_offset_given_by_hand_counts_instead(path: Path) -> None:
    log = log_of(path, HEADER, {**sample(12.5), "t_mono_ns": 1}, offset_ns=10 * S)
    assert [one.at_s for one in log.samples] == [2.5]


def test_a_clock_known_too_loosely_is_not_joined(path: Path) -> None:
    lines = (HEADER, clock(0, 0, 0.25), sample(1))
    assert log_of(path, *lines).unavailable is None
    why = log_of(path, *lines, clock(9, 0, 0.3)).unavailable
    assert why == (
        "the clock of gpu-host is known to within 0.300 s only; "
        "joining it with latencies needs half a period, 0.250 s"
    )


def test_a_recorded_h200_shows_what_utilization_hides() -> None:
    """Recorded by this sidecar: idle, 5 s of an 8192 bf16 product, 5 s of copying 1 GiB, idle."""
    recorded = Path(__file__).with_name("h200.jsonl")
    t0_mono_ns = json.loads(recorded.read_text().partition("\n")[0])["t_mono_ns"]
    log = read_gpu_log(recorded, t0_mono_ns=t0_mono_ns, t0_wall_ns=0)
    assert log.unavailable is None
    assert log.gpus[0].unsupported == {}
    assert [one.at_s for one in log.samples] == pytest.approx([k / 2 for k in range(41)], abs=0.05)
    busy = [one for one in log.samples if (one.util_gpu_pct or 0) >= 99]
    product = [one for one in busy if (one.tensor_active_pct or 0) > 90]
    copy = [one for one in busy if (one.dram_active_pct or 0) > 80]
    assert len(product) == len(copy) == 9
    assert max(one.dram_active_pct or 0 for one in product) < 20
    assert max(one.tensor_active_pct or 0 for one in copy) == 0
    joules = [one.energy_j for one in log.samples if one.energy_j is not None]
    assert joules == sorted(joules)
