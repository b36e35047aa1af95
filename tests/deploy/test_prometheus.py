"""What is shipped for Prometheus and Grafana, tried with Debian's real Prometheus."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.serving import running_target
from tests.sidecar.running import TWO_GPUS, compile_driver, needs_gcc, replace, sidecar

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "target" / "deploy"
UNPACKED = ROOT / ".prometheus" / "usr" / "bin"

GPM = "".join(f"{gpu}.gpm=1\n{gpu}.gpm.2=40\n{gpu}.gpm.5=7\n{gpu}.gpm.10=62\n" for gpu in (0, 1))


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        pytest.skip(f"no {name}; make test unpacks Debian's")
    return found


def queries() -> list[tuple[str, str]]:
    """Every query of the dashboard, its variables filled in as Grafana would for "All"."""
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    told = [
        (panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]
    ]
    return [
        (title, re.sub(r"\$(target|host|gpu)\b", ".*", expr).replace("$__rate_interval", "10s"))
        for title, expr in told
    ]


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    for what, name in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        done = subprocess.run(
            [tool("promtool"), "check", what, DEPLOY / name], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "SUCCESS" in done.stdout


def test_the_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "alerts.yml", tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), tmp_path)
    done = subprocess.run(
        [tool("promtool"), "test", "rules", "alerts_test.yml"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_holds_together() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    named = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(board["panels"])))
    assert used == named, "every variable is used, and none is missing"
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    titles = " ".join(panel["title"].lower() for panel in board["panels"])
    for word in ("first token", "queue", "dram", "power", "kv cache"):
        assert word in titles


@contextmanager
def prometheus(place: Path, target: str, metrics: str) -> Iterator[str]:
    """A real one with the shipped files, that asks our two processes twice a second; its URL."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    for job, url in zip(config["scrape_configs"], (target, metrics), strict=True):
        job["static_configs"][0]["targets"] = [httpx.URL(url).netloc.decode()]
    (place / "prometheus.yml").write_text(yaml.safe_dump(config))
    rules = (DEPLOY / "alerts.yml").read_text()
    (place / "alerts.yml").write_text(re.sub(r"for: \d+m", "for: 1s", rules))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    argv = [tool("prometheus"), f"--config.file={place / 'prometheus.yml'}"]
    argv += [f"--storage.tsdb.path={place / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (place / "log").open("wb") as log, subprocess.Popen(argv, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: httpx.get(f"{url}/-/ready", trust_env=False).is_success, place / "log")
            yield url
        finally:
            process.terminate()


def until(holds: Any, log: Path, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if holds():
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.2)


@contextmanager
def load(url: str) -> Iterator[None]:
    """Requests one after the other for the block."""
    over = threading.Event()

    def asking() -> None:
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            body = {"messages": [{"role": "user", "content": "1 + 1?"}], "max_tokens": 8}
            while not over.is_set():
                client.post("/v1/chat/completions", json=body)

    thread = threading.Thread(target=asking)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@needs_gcc
def test_every_query_returns_data_and_a_killed_sidecar_is_noticed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path / "script.txt"
    script.write_text(TWO_GPUS + GPM)
    library = compile_driver(tmp_path_factory.mktemp("driver"))
    env = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(script)}
    ports = ("--metrics-port", "0", "--period", "0.5")
    with (
        running_target("--engine", "sim", "--gpu", "h200") as target,
        sidecar(tmp_path / "gpu.jsonl", *ports, **env) as running,
        load(target),
    ):
        assert running.process.stdout is not None
        said = running.process.stdout.readline()
        metrics = said.split()[-1].removesuffix("/metrics")
        with prometheus(tmp_path, target, metrics) as url:

            def ask(expr: str) -> list[dict[str, Any]]:
                answer = httpx.get(f"{url}/api/v1/query", params={"query": expr}, trust_env=False)
                assert answer.is_success, (expr, answer.text)
                return list(answer.json()["data"]["result"])

            def empty() -> list[str]:
                return [f"{title}: {expr}" for title, expr in queries() if not known(ask(expr))]

            log = tmp_path / "log"
            until(lambda: not empty() or time.sleep(0.5), log)
            # The numbers are those of the script, in the units of the names.
            replace(script, (TWO_GPUS + GPM).replace("0.util=10,5", "0.util=97,40"))
            until(lambda: value(ask('DCGM_FI_DEV_GPU_UTIL{gpu="0"}')) == 97, log)
            assert value(ask('DCGM_FI_PROF_DRAM_ACTIVE{gpu="0"}')) == 0.62
            running.process.kill()
            until(lambda: firing(url, "SidecarDown"), log)
            assert not firing(url, "TargetDown")


def known(result: list[dict[str, Any]]) -> bool:
    """At least one series has a number; a quantile of nothing is NaN."""
    return any(series["value"][1] != "NaN" for series in result)


def value(result: list[dict[str, Any]]) -> float | None:
    return float(result[0]["value"][1]) if result else None


def firing(url: str, name: str) -> bool:
    alerts = httpx.get(f"{url}/api/v1/alerts", trust_env=False).json()["data"]["alerts"]
    return any(a["labels"]["alertname"] == name and a["state"] == "firing" for a in alerts)
