"""Throttling, KV pressure and memory growth reproduced: the simulated engine, a real load, and for
the GPU's own word the compiled driver, whose script changes while the sidecar runs."""

import os
import shutil
import subprocess
import time
from dataclasses import replace as replace_fields
from pathlib import Path
from types import MappingProxyType

import pytest

from slo.causes import causes
from slo.rundir import read_run, write_run
from slo.thresholds import LIMITS
from tests.causes.evidence import evident_run
from tests.cli.conftest import SLO
from tests.serving import ROOT, running_target
from tests.sidecar.running import compile_driver, needs_gcc, replace, sidecar

# What a GPU says in each case; utilisation is high in two of them that have nothing in common.
IDLE = "0.util=0,0\n0.gpm.2=0\n0.gpm.5=0\n0.gpm.10=0\n0.reasons=0x1\n"
HOST = "0.util=25,4\n0.gpm.2=4\n0.gpm.5=0.4\n0.gpm.10=3\n0.reasons=0\n"
COPY = "0.util=97,100\n0.gpm.2=92\n0.gpm.5=0\n0.gpm.10=82\n0.reasons=0\n"
MATRIX = "0.util=95,22\n0.gpm.2=85\n0.gpm.5=76\n0.gpm.10=19\n0.reasons=0\n"
TINY = "0.util=94,5\n0.gpm.2=10\n0.gpm.5=3\n0.gpm.10=5\n0.reasons=0\n"
HOT = "0.util=97,60\n0.gpm.2=85\n0.gpm.5=40\n0.gpm.10=50\n0.reasons=0x40\n"
ALWAYS = "gpus=1\n0.name=Fake H200\n0.gpm=1\n0.mem=1048576000,104857600,629145600,314572800\n"


def run(url: str, out: Path, *options: str, **env: str) -> None:
    argv = [*SLO, "run", "--target", url, "--out", str(out), "--seed", "5", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_cache_that_is_too_small_is_kv_pressure(tmp_path: Path) -> None:
    sim = ("--engine", "sim", "--gpu", "l4", "--kv-blocks", "40", "--max-running", "64")
    load = ("--rate", "6/s", "--duration", "5s", "--warmup", "0s", "--max-tokens", "48")
    with running_target(*sim) as url:
        run(url, tmp_path / "run", *load, "--ignore-eos", "--sidecar", "off")
    found = causes(tmp_path / "run")
    server = found.signals.server
    assert server is not None
    assert found.diagnosis.word == "kv-pressure", found.diagnosis.rules
    assert (server.kv_usage_p95 or 0) > 0.9 or (server.preemptions or 0) > 0


def test_a_leak_is_memory_growth(tmp_path: Path) -> None:
    sim = ("--engine", "sim", "--gpu", "h200", "--fault", "leak:mib=50")
    load = ("--rate", "20/s", "--duration", "14s", "--warmup", "1s", "--max-tokens", "4")
    with running_target(*sim) as url:
        run(url, tmp_path / "run", *load, "--sidecar", "off")
    # In earnest ten minutes are asked for; here seconds must do.
    found = causes(tmp_path / "run", MappingProxyType({**LIMITS, "growth_s": 10}))
    assert found.diagnosis.word == "memory-growth", found.diagnosis.rules
    growth = found.signals.server and found.signals.server.allocated
    assert growth is not None
    # 13 s x 20/s x 50 MiB beside 3.4 GiB of weights.
    assert growth.share > 1
    assert causes(tmp_path / "run").diagnosis.word == "not-measured"


CASES = {
    "no-load": IDLE,
    "throttled": HOT,
    "host-bound": HOST,
    "bandwidth-bound": COPY,
    "compute-bound": MATRIX,
    "small-kernels": TINY,
}


@needs_gcc
def test_the_diagnosis_follows_the_driver_while_one_sidecar_runs(
    tmp_path: Path, library: Path
) -> None:
    script = tmp_path / "script.txt"
    script.write_text(ALWAYS + IDLE)
    env = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(script)}
    begun: dict[str, int] = {}
    with sidecar(tmp_path / "gpu.jsonl", "--period", "0.1", **env) as running:
        for word, says in CASES.items():
            replace(script, ALWAYS + says)
            begun[word] = time.monotonic_ns()
            enough = begun[word] + 4 * 10**9
            running.until(lambda lines, ns=enough: lines and lines[-1]["t_mono_ns"] > ns)
    # In earnest ten seconds are asked for; here three must do.
    limits = MappingProxyType({**LIMITS, "evidence_s": 2})
    for word, t0_ns in begun.items():
        rate, e2e_s = (0.05, 0.2) if word == "no-load" else (10.0, 0.45)
        directory = evident_run(tmp_path / word, seconds=20, rate_per_s=rate, e2e_s=e2e_s)
        shutil.copy(tmp_path / "gpu.jsonl", directory)
        one = read_run(directory)
        write_run(directory, replace_fields(one, t0_mono_ns=t0_ns, duration_s=4.0))
        found = causes(directory, limits).diagnosis
        assert found.word == word, found.rules


@needs_gcc
def test_a_throttled_gpu_is_named_by_a_whole_run(tmp_path: Path, library: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text(ALWAYS + HOT)
    sim = ("--engine", "sim", "--gpu", "h200", "--fault", "throttle:factor=3")
    load = ("--rate", "10/s", "--duration", "12s", "--warmup", "0s", "--max-tokens", "8")
    with running_target(*sim) as url:
        env = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(script)}
        run(url, tmp_path / "run", *load, **env)
    found = causes(tmp_path / "run").diagnosis
    assert found.word == "throttled", found.rules
    assert "hardware thermal limit 100 % of the time" in found.numbers


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver"))
