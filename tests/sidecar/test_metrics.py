"""The sidecar for Prometheus and for a person: a real process over the compiled driver."""

import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.sidecar.running import (
    TWO_GPUS,
    Sidecar,
    command,
    environment,
    needs_gcc,
    replace,
    sidecar,
)

GPM = "0.gpm=1\n0.gpm.2=40\n0.gpm.5=7.5\n0.gpm.10=62.5\n0.gpm.20=2\n0.throttled=1500000000\n"
Metrics = dict[tuple[str, str], float]  # by name and GPU


@contextmanager
def exporting(out: Path, **env: str) -> Iterator[tuple[Sidecar, str]]:
    with sidecar(out, "--metrics-port", "0", "--period", "0.1", **env) as running:
        assert running.process.stdout is not None
        ready = re.match(r"tailgate metrics on (http://\S+)", running.process.stdout.readline())
        assert ready
        yield running, ready[1]


def scrape(url: str) -> Metrics:
    text = httpx.get(url, trust_env=False).raise_for_status().text
    return {
        (sample.name, sample.labels.get("gpu", "") + sample.labels.get("reason", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def until(url: str, key: tuple[str, str], value: float | None) -> Metrics:
    deadline = time.monotonic() + 20
    while (found := scrape(url)).get(key) != value:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


@needs_gcc
def test_metrics_have_the_names_and_units_of_dcgm_exporter(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    script.write_text(TWO_GPUS.replace("reasons=0x1", "reasons=0x44") + GPM)
    with exporting(tmp_path / "gpu.jsonl", **fake_driver) as (_, url):
        found = until(url, ("DCGM_FI_PROF_DRAM_ACTIVE", "0"), 0.625)
        assert found["DCGM_FI_DEV_GPU_UTIL", "0"] == 10
        assert found["DCGM_FI_DEV_GPU_UTIL", "1"] == 20
        assert found["DCGM_FI_DEV_FB_USED", "0"] == 300  # MiB
        assert found["DCGM_FI_DEV_FB_FREE", "0"] == 600
        assert found["DCGM_FI_DEV_POWER_USAGE", "0"] == 100  # W
        assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "0"] == 5000  # mJ
        assert found["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0"] == 0.075
        assert found["DCGM_FI_PROF_PCIE_TX_BYTES", "0"] == 2 * 1024 * 1024
        assert found["tailgate_gpu_throttled", "0power cap"] == 1
        assert found["tailgate_gpu_throttled", "0hardware thermal limit"] == 1
        assert found["tailgate_gpu_throttled", "0power brake"] == 0
        assert found["tailgate_gpu_throttled_seconds_total", "0power cap"] == 1.5
        # The second GPU has no GPM: its ratios are absent, not 0.
        assert ("DCGM_FI_PROF_DRAM_ACTIVE", "1") not in found
        assert found["tailgate_sidecar_samples_total", ""] >= 2
        text = httpx.get(url, trust_env=False).text
    labels = re.search(r'DCGM_FI_DEV_GPU_UTIL\{(.*UUID="GPU-0".*)\}', text)
    assert labels is not None
    for part in ('device="nvidia0"', 'modelName="Fake A"', 'hostname="'):
        assert part in labels[1]


@needs_gcc
def test_metrics_follow_the_load_and_a_lost_gpu_goes(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    with exporting(tmp_path / "gpu.jsonl", **fake_driver) as (_, url):
        until(url, ("DCGM_FI_DEV_GPU_UTIL", "0"), 10)
        replace(script, TWO_GPUS.replace("0.util=10,5", "0.util=97,40") + "1.error.all=15\n")
        found = until(url, ("DCGM_FI_DEV_GPU_UTIL", "0"), 97)
        until(url, ("DCGM_FI_DEV_GPU_UTIL", "1"), None)
        assert ("DCGM_FI_DEV_GPU_UTIL", "0") in found


@needs_gcc
def test_without_a_terminal_watching_prints_lines_and_leaves_no_file(
    tmp_path: Path, fake_driver: dict[str, str]
) -> None:
    done = subprocess.run(
        command("--watch", "--period", "0.2", "--duration", "0.5"),
        cwd=tmp_path, env=environment(**fake_driver), capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()[:2]
    assert first == (
        "GPU 0 Fake A: util 10 %, dram -, tensor -, sm -, memory 0.3 / 1.0 GiB, power 100 W, "
        "temp 50 C, sm clock 1500 MHz, slowed by nothing"
    )
    assert second.startswith("GPU 1 Fake B: util 20 %")
    assert list(tmp_path.glob("*.jsonl")) == []


@needs_gcc
def test_on_a_terminal_watching_draws_in_place(
    tmp_path: Path, script: Path, fake_driver: dict[str, str]
) -> None:
    script.write_text(TWO_GPUS.replace("0.reasons=0x1", "0.reasons=0x40") + GPM)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("--watch", "--period", "0.2", "--duration", "1"),
        env=environment(COLUMNS="140", TERM="xterm", **fake_driver),
        stdin=theirs, stdout=theirs, cwd=tmp_path,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break
        assert process.wait(20) == 0
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert "0 Fake A" in text
    assert "62 % ████████····" in text  # DRAM
    assert "hardware thermal limit" in text
    assert text.count("Slowed by") >= 3, "drawn anew on each beat"


def test_watching_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    done = subprocess.run(
        command("--watch", "--duration", "0.1"),
        cwd=tmp_path,
        env=environment(LD_LIBRARY_PATH=str(tmp_path / "nothing")),
        capture_output=True,
        text=True,
        check=True,
    )
    if "NVMLError" not in done.stdout:
        pytest.skip("this machine has a driver")
    assert done.stdout.startswith("nothing to watch: NVMLError_LibraryNotFound")


def test_a_metrics_port_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--metrics-port", "1", "--host", "192.0.2.1"),
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "nvml_sidecar: 192.0.2.1:1: Cannot assign requested address\n"
