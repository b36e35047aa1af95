"""The sidecar as a process: over a compiled driver, without a driver, and told to stop."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slo.gpu_log import SCHEMA, read_gpu_log
from target.gpu_sampler import SCHEMA as WRITTEN_SCHEMA
from target.nvml_sidecar import next_beat
from tests.sidecar.running import (
    ROOT,
    TWO_GPUS,
    command,
    environment,
    needs_gcc,
    replace,
    sidecar,
)


@needs_gcc
def test_samples_follow_the_load_and_a_lost_gpu_leaves_the_other(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    out, loaded = tmp_path / "gpu.jsonl", TWO_GPUS.replace("0.util=10,5", "0.util=97,40")
    with sidecar(out, "--period", "0.05", **fake_driver) as running:
        running.until(lambda lines: len(lines) > 4)
        replace(script, loaded)
        running.until(lambda lines: any(one.get("util_gpu_pct") == 97 for one in lines))
        replace(script, loaded + "1.error.all=15\n")
        lost = running.until(lambda lines: [one for one in lines if one["type"] == "event"])
        after = len(running.records())
        running.until(lambda lines: len(lines) > after + 3)
        assert running.stop()[0] == 0

    assert [(one["gpu"], one["field"], one["error"]) for one in lost] == [
        (1, "gpu", "NVMLError_GpuIsLost")
    ]
    header, *others, end = running.records()
    assert [gpu["name"] for gpu in header["gpus"]] == ["Fake A", "Fake B"]
    assert header["gpus"][0]["peak_bandwidth_gb_s"] == 960.0  # 384 bit x 10 GHz x 2 / 8
    assert header["period_s"] == 0.05
    assert end["type"] == "end"
    assert {one["gpu"] for one in others[-3:]} == {0}
    utils = [one["util_gpu_pct"] for one in others if one["type"] == "sample" and one["gpu"] == 0]
    changed = utils.index(97)
    assert set(utils[:changed]) == {10}
    assert set(utils[changed:]) == {97}
    first = others[0]
    assert (first["mem_used_mib"], first["power_w"], first["energy_j"]) == (300.0, 100.0, 5.0)
    assert (first["temperature_c"], first["sm_clock_mhz"], first["mem_clock_mhz"]) == (
        50,
        1500,
        9000,
    )
    assert first["processes"] == [{"pid": 4242, "mem_mib": 256.0}]


@needs_gcc
def test_a_lost_gpu_that_recovers_comes_back_in_the_log(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    def lost(lines: list[dict[str, object]]) -> int:
        return sum(one["type"] == "event" and one.get("field") == "gpu" for one in lines)

    with sidecar(tmp_path / "gpu.jsonl", "--period", "0.05", **fake_driver) as running:
        running.until(lambda lines: len(lines) > 4)
        replace(script, TWO_GPUS + "1.error.all=15\n")
        running.until(lambda lines: lost(lines) == 1)
        gone = len(running.records())
        replace(script, TWO_GPUS.replace("1.util=20,6", "1.util=77,6"))
        running.until(  # the slowest beat, on which it is asked again
            lambda lines: any(one.get("util_gpu_pct") == 77 for one in lines[gone:])
        )
        assert running.stop()[0] == 0
    events = [(one["gpu"], one["error"]) for one in running.records("event")]
    assert events == [(1, "NVMLError_GpuIsLost")]


@needs_gcc
def test_gpm_comes_through_the_real_structs(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    replace(script, "0.gpm=1\n0.gpm.2=89.4\n0.gpm.10=86.0\n0.gpm.5=nan\n")
    with sidecar(tmp_path / "gpu.jsonl", "--period", "0.1", **fake_driver) as running:
        samples = running.until(
            lambda lines: [one for one in lines if one.get("dram_active_pct") == 86.0]
        )
    assert samples[0]["sm_active_pct"] == 89.4
    assert samples[0]["tensor_active_pct"] is None
    unsupported = running.records()[0]["gpus"][0]["unsupported"]
    assert unsupported["tensor_active_pct"] == "NaN"
    assert unsupported["pcie_tx_mib_s"] == "NVMLError_NotSupported"


@needs_gcc
def test_the_beat_does_not_drift_when_a_pass_is_slow(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    replace(script, "delay_us=15000\n")
    out = tmp_path / "gpu.jsonl"
    subprocess.run(
        command("--out", out, "--period", "0.05", "--duration", "2"),
        env=environment(**fake_driver),
        check=True,
    )
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    end = lines[-1]
    # A loop that slept the period after each pass would come to 2 s / 65 ms = 31.
    assert end["beats"] + end["skipped"] == pytest.approx(40, abs=1)
    times = [one["t_mono_ns"] / 1e9 for one in lines if one["type"] == "sample"]
    assert len(times) == end["beats"]
    assert (times[-1] - times[0]) / 0.05 == pytest.approx(39, abs=1)


def test_the_grid_keeps_its_phase_and_counts_what_was_missed() -> None:
    assert next_beat(10.0, 10.01, 0.5) == (10.5, 0)
    assert next_beat(10.0, 10.7, 0.5) == (10.5, 0)  # late, but still to be kept
    assert next_beat(10.0, 12.2, 0.5) == (12.0, 3)


@needs_gcc
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_however_long_the_period(
    tmp_path: Path, fake_driver: dict[str, str], how: signal.Signals
) -> None:
    with sidecar(tmp_path / "gpu.jsonl", "--period", "60", **fake_driver) as running:
        running.until(lambda lines: lines)
        code, took_s = running.stop(how)
        assert running.process.communicate() == ("", "")
    assert code == 0
    assert took_s < 2
    assert [one["type"] for one in running.records()] == ["header", "sample", "sample", "end"]


@needs_gcc
def test_kill_9_leaves_a_readable_file_and_a_restart_goes_on_in_it(
    tmp_path: Path, fake_driver: dict[str, str]
) -> None:
    out = tmp_path / "gpu.jsonl"
    with sidecar(out, "--period", "0.05", **fake_driver) as running:
        running.until(lambda lines: len(lines) > 10)
        assert running.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    before = out.read_text()
    assert before.endswith("\n")
    out.write_text(before + '{"type":"sample","gpu":0,"t_wa')  # as a full disk or a crash cuts it

    refused = subprocess.run(
        command("--out", out), env=environment(**fake_driver), capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert refused.stderr == (
        f"nvml_sidecar: {out}: exists; name another --out, or use --append or --force\n"
    )
    with sidecar(out, "--append", "--period", "0.05", **fake_driver) as running:
        running.until(lambda lines: len(lines) > before.count("\n") + 10)
        running.stop()
    assert out.read_text().startswith(before)
    log = read_gpu_log(out, t0_mono_ns=0, t0_wall_ns=0)
    assert log.unavailable is None
    assert len(log.headers) == 2
    assert len({header.pid for header in log.headers}) == 2

    with sidecar(out, "--force", "--duration", "0.2", **fake_driver) as running:
        running.process.wait(20)
    assert len(read_gpu_log(out, t0_mono_ns=0, t0_wall_ns=0).headers) == 1


def test_without_a_driver_it_says_so_once_and_waits_to_be_stopped(tmp_path: Path) -> None:
    empty = tmp_path / "nothing"
    empty.mkdir()
    with sidecar(tmp_path / "gpu.jsonl", LD_LIBRARY_PATH=str(empty)) as running:
        header = running.until(lambda lines: lines)[0]
        if header["unavailable"] is None:
            pytest.skip("this machine has a driver")
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(0.5)
        assert running.stop()[0] == 0
    assert header["unavailable"].startswith("NVMLError_LibraryNotFound: ")
    assert header["gpus"] == []
    log = read_gpu_log(running.out, t0_mono_ns=0, t0_wall_ns=0)
    assert (log.unavailable, log.samples) == ("no NVML library", ())


def test_without_the_bindings_it_names_the_extra(tmp_path: Path) -> None:
    absent = tmp_path / "pynvml.py"
    absent.write_text("raise ModuleNotFoundError(\"No module named 'pynvml'\", name='pynvml')\n")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    with sidecar(tmp_path / "gpu.jsonl", PYTHONPATH=path) as running:
        header = running.until(lambda lines: lines)[0]
        assert running.stop()[0] == 0
    assert header["unavailable"] == "no pynvml package (pip install 'tailgate[gpu]')"


def test_it_ends_when_its_parent_has_gone(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    # The middle process starts the sidecar, says its pid, and is killed.
    code = (
        "import os, subprocess, sys, time\n"
        "one = subprocess.Popen(sys.argv[1:] + ['--parent', str(os.getpid())],"
        " stdout=subprocess.DEVNULL)\n"
        "print(one.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", code, *command("--out", out)]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        deadline = time.monotonic() + 20
        while not (out.exists() and out.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        parent.kill()
    while '"type":"end"' not in out.read_text():
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("it went on without its parent")
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--period", "0.01"],
            "argument --period: 0.01 s is outside what is allowed: 0.05 to 60 s",
        ),
        (["--period", "nan"], "argument --period: nan s is outside"),
        (["--period", "fast"], "argument --period: 'fast' is no number of seconds"),
        (["--duration", "-1"], "argument --duration: -1 s is outside"),
        (["--port", "99999"], "argument --port: '99999' is no port; allowed: 0 to 65535"),
        (["--append", "--force"], "not allowed with argument"),
        (["--out", "nowhere/gpu.jsonl"], "nvml_sidecar: nowhere/gpu.jsonl: there is no such dir"),
        (["--out", "."], "nvml_sidecar: .: "),
        (["--out", "/dev/full", "--force"], "nvml_sidecar: /dev/full: No space left on device"),
        (["--port", "1", "--host", "192.0.2.1"], "nvml_sidecar: 192.0.2.1:1: Cannot assign"),
    ],
)
def test_what_cannot_start_is_one_line_and_exit_2(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    done = subprocess.run(
        command(*arguments), cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_reader_and_writer_agree_on_the_schema() -> None:
    assert SCHEMA == WRITTEN_SCHEMA
