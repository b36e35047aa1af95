"""A leak is found in hours at one rate, and its absence too."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np

from slo import soak_cli
from slo.gpu_log import GpuLog, GpuSample
from slo.record import Failure
from slo.server_log import ServerLog
from slo.soak import FEWEST, growths, memory_of, windows_of
from tests.cli.conftest import SLO, slo
from tests.cli.processes import locust_of
from tests.serving import running_target
from tests.slo.make_logs import write_server
from tests.slo.make_run import make_run

HOUR = 3600.0


def soaked(mib_per_hour: float, hours: float, *, slower_per_hour: float = 0.0) -> dict[str, bool]:
    rng = np.random.default_rng(2)
    at = np.arange(0, hours * HOUR, 30.0)
    memory = [(t, 4096 + mib_per_hour * t / HOUR + rng.normal(0, 40)) for t in at]
    e2e = [(t, 1 + slower_per_hour * t / HOUR + rng.exponential(0.2)) for t in at]
    found = windows_of(e2e, memory, start_s=0.0, end_s=hours * HOUR, window_s=600.0)
    return {growth.what: growth.grows for growth in growths(found)}


def test_memory_that_creeps_from_4_to_10_gb_over_hours_is_found_and_nothing_else() -> None:
    assert soaked(1024.0, 6.0) == {"memory": True, "e2e p50": False, "e2e p95": False}


def test_steady_memory_is_no_growth_and_latency_that_rises_is_one() -> None:
    assert soaked(0.0, 6.0) == {"memory": False, "e2e p50": False, "e2e p95": False}
    assert soaked(0.0, 6.0, slower_per_hour=0.2)["e2e p50"]


def test_too_few_windows_say_nothing() -> None:
    assert soaked(1024.0, (FEWEST - 1) / 6) == {}


def test_the_simulator_s_leak_is_found_and_ends_the_soak(tmp_path: Path) -> None:
    options = ("--engine", "sim", "--gpu", "l4", "--reasoning", "none", "--fault", "leak:mib=30")
    with running_target(*options) as url:
        done = slo(
            "soak", "--target", url, "--rate", "8/s", "--duration", "60s", "--window", "1s",
            "--warmup", "1s", "--max-tokens", "8", "--sidecar", "off", "--seed", "1",
            "--out", "soak", cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "memory grows" in done.stdout
    document = json.loads((tmp_path / "soak" / "soak.json").read_text())
    assert FEWEST <= len(document["windows"]) < 40  # it did not go on to the end
    memory = [window["values"]["memory"] for window in document["windows"]]
    assert memory[-1] > memory[0] + 1000


def test_a_soak_that_breaks_off_is_incomplete_though_nothing_grew(tmp_path: Path) -> None:
    with running_target("--engine", "sim", "--gpu", "l4", "--reasoning", "none") as url:
        argv = [*SLO, "soak", "--target", url, "--rate", "20/s", "--duration", "120s"]
        argv += ["--window", "500ms", "--warmup", "1s", "--max-tokens", "8", "--sidecar", "off"]
        with subprocess.Popen([*argv, "--seed", "1", "--out", "soak"], cwd=tmp_path) as process:
            requests = tmp_path / "soak" / "requests.jsonl"
            deadline = time.monotonic() + 60
            while not requests.exists() or requests.read_text().count("\n") < 10 * (FEWEST + 8):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            os.kill(locust_of(process.pid), signal.SIGKILL)
            assert process.wait(60) == 4
    document = json.loads((tmp_path / "soak" / "soak.json").read_text())
    assert not any(growth["grows"] for growth in document["growths"])
    assert len(document["windows"]) >= FEWEST


def test_the_gpu_that_leaks_is_seen_beside_idle_ones() -> None:
    def held(gpu: int, at_s: float) -> float:
        return 4096 * (1 + 0.1 * at_s / HOUR) if gpu == 1 else 500.0

    samples = [
        GpuSample(at_s=t, gpu=gpu, mem_used_mib=held(gpu, t))
        for t in np.arange(0.0, 4 * HOUR, 60.0).tolist()
        for gpu in range(4)
    ]
    memory = memory_of(ServerLog(None), GpuLog(None, samples=tuple(samples)))
    assert memory == [(one.at_s, one.mem_used_mib) for one in samples if one.gpu == 1]


def test_a_server_that_dies_in_mid_soak_is_not_steady(tmp_path: Path) -> None:
    rng = random.Random(3)
    took = [0.1 + 0.01 * rng.random() for _ in range(400)]
    dead = dict.fromkeys(range(100, 400), Failure.REFUSED)
    directory = make_run(tmp_path / "run", took, failures=dead)
    write_server(directory, allocated_mib=lambda s: 4000.0)
    assert soak_cli.report(directory, 0.0, 1.0) == 3


def test_what_the_windows_cannot_tell_is_no_pass() -> None:
    rng = np.random.default_rng(2)
    e2e = [(float(t), float(rng.exponential(0.2))) for t in range(100)]
    found = growths(windows_of(e2e, [], start_s=0.0, end_s=100.0, window_s=10.0))
    assert [(one.what, one.grows, one.steady) for one in found] == [
        ("e2e p50", False, False),
        ("e2e p95", False, False),
    ]
    assert "cannot be said to grow or not" in found[0].sentence
