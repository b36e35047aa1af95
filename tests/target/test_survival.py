"""What the server lives through: storms, overload, no memory, an engine that died."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.benchmarks.ladder_storm import disconnect_storm
from tests.serving import ROOT, Target, started_target
from tests.target.asking import QUESTION, chat, deltas, metric, said, until

A10 = ("--engine", "sim", "--gpu", "a10", "--reasoning", "none")


def kv_usage(url: str) -> float:
    return metric(url, "tailgate_kv_cache_usage_ratio")


@pytest.fixture(scope="module")
def a10() -> Iterator[Target]:
    """A simulated A10 with few places."""
    options = (*A10, "--max-num-seqs", "16", "--max-queue", "600")
    with started_target(*options) as target:
        yield target


def test_500_clients_that_leave_in_mid_stream_leave_nothing_behind(a10: Target) -> None:
    url = a10.url
    quiet = kv_usage(url), metric(url, "tailgate_gpu_memory_allocated_bytes")
    told = disconnect_storm(url, "sim", QUESTION[0]["content"], 500, chunks=1)
    until(lambda: metric(url, "tailgate_requests_running") == 0)
    until(lambda: metric(url, "tailgate_requests_waiting") == 0)
    assert told["had_text"] > 0
    assert metric(url, 'tailgate_requests_total{outcome="cancelled"}') == 500
    assert (kv_usage(url), metric(url, "tailgate_gpu_memory_allocated_bytes")) == quiet
    assert chat(url, max_tokens=4).status_code == 200


def test_ten_times_too_much_load_is_refused_and_over_when_it_is_over() -> None:
    options = (*A10, "--max-num-seqs", "8", "--max-queue", "8")
    with started_target(*options) as target, ThreadPoolExecutor(160) as pool:
        url = target.url
        answers = list(pool.map(lambda _: chat(url, max_tokens=500), range(160)))
        refused = [answer for answer in answers if answer.status_code == 503]
        assert len(refused) > 80
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert metric(url, 'tailgate_requests_total{outcome="rejected"}') == len(refused)
        assert {answer.status_code for answer in answers} == {200, 503}
        start = time.monotonic()
        assert chat(url, max_tokens=4).status_code == 200
        assert time.monotonic() - start < 3
        assert kv_usage(url) == 0


def test_without_memory_the_answer_is_503_and_the_server_says_degraded() -> None:
    with started_target(*A10, "--fault", "out-of-memory:share=0.5") as target:
        url = target.url
        assert httpx.get(f"{url}/health").json() == {"status": "ready"}
        statuses = [chat(url, max_tokens=2).status_code for _ in range(12)]
        assert set(statuses) == {200, 503}
        health = httpx.get(f"{url}/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert "no memory left" in health.json()["reasons"][0]
        counted = metric(url, 'tailgate_requests_total{outcome="out_of_memory"}')
        assert counted == statuses.count(503)


def test_a_leak_shows_in_the_trend_and_ends_in_503() -> None:
    options = ("--kv-blocks", "64", "--host-ms", "0", "--fault", "leak:mib=2000")
    with started_target(*A10, *options) as target:
        url = target.url
        assert [chat(url, max_tokens=1).status_code for _ in range(6)] == [200] * 6
        slope = metric(url, "tailgate_gpu_memory_trend_bytes_per_request")
        assert slope == pytest.approx(2000 * 2**20, rel=0.05)
        assert [chat(url, max_tokens=1).status_code for _ in range(8)][-1] == 503
        before = metric(url, "tailgate_gpu_memory_allocated_before_bytes")
        assert metric(url, "tailgate_gpu_memory_allocated_after_bytes") >= before


def test_injected_errors_and_cuts_reach_the_client() -> None:
    options = ("--engine", "sim", "--ttft-ms", "1", "--itl-ms", "1", "--reasoning", "none")
    with started_target(*options, "--fault", "error:share=0.4", "--seed", "1") as target:
        statuses = [chat(target.url, max_tokens=2).status_code for _ in range(20)]
        assert 2 < statuses.count(500) < 16
        assert metric(target.url, 'tailgate_requests_total{outcome="error"}') > 2
    with (
        started_target(*options, "--fault", "cut:after=5") as target,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        chat(target.url, stream=True, max_tokens=20)


SCRIPT = """
import sys, threading, time
from dataclasses import replace
from target import engines
from target.__main__ import main
real = engines.load
def load(args, startup):
    {before}
    engine = real(args, startup)
    return {engine}
engines.load = load
sys.argv = ["target", "serve", "--engine", "sim", "--port", "0"]
sys.exit(main())
"""


def patched(before: str = "pass", engine: str = "engine") -> "subprocess.Popen[str]":
    """A server whose engine was changed before it starts."""
    code = SCRIPT.format(before=before, engine=engine)
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def test_an_engine_that_died_ends_the_process_with_3_and_its_reason() -> None:
    born = "t0 = time.monotonic()"
    engine = (
        "replace(engine, trouble=lambda: 'the core is gone' if time.monotonic()-t0>1 else None)"
    )
    with patched(born, engine) as process:
        assert process.wait(20) == 3
        assert process.stderr is not None
        assert process.stderr.read() == "target: the engine died: the core is gone\n"


def test_while_it_loads_health_says_starting_and_other_routes_503(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    before = (
        f"import gc, socket; found = [s for s in gc.get_objects() if isinstance(s, socket.socket)"
        f" and s.fileno() >= 0 and s.type == socket.SOCK_STREAM]; "
        f"ports = [s.getsockname()[1] for s in found if s.family == socket.AF_INET"
        f" and s.getsockname()[1]]; open({str(port_file)!r}, 'w').write(str(ports[0])); "
        f"time.sleep(3)"
    )
    with patched(before) as process:
        try:
            port = 0

            def known() -> bool:
                nonlocal port
                port = int(port_file.read_text() or 0) if port_file.exists() else 0
                return port > 0

            until(known)
            url = f"http://127.0.0.1:{port}"
            health = httpx.get(f"{url}/health")
            assert (health.status_code, health.json()["status"]) == (503, "starting")
            assert health.json()["phase"] == "import"
            refused = chat(url)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "starting")
            assert refused.headers["retry-after"] == "1"
            until(lambda: httpx.get(f"{url}/health").json() == {"status": "ready"})
            startup = httpx.get(f"{url}/info").json()["startup"]
            assert startup["total_s"] >= 3
            assert set(startup) == {"import_s", "weights_s", "compile_s", "warmup_s", "total_s"}
        finally:
            process.kill()


def test_a_slow_server_raises_one_alarm_and_is_degraded() -> None:
    options = ("--ttft-ms", "60", "--itl-ms", "1", "--max-running", "32")
    alarm = ("--alert-p95-ms", "50", "--alert-window", "30")
    with (
        started_target("--engine", "sim", *options, *alarm) as target,
        ThreadPoolExecutor(16) as pool,
    ):
        url = target.url
        list(pool.map(lambda _: chat(url, max_tokens=1), range(19)))
        assert httpx.get(f"{url}/health").json()["status"] == "ready"
        list(pool.map(lambda _: chat(url, max_tokens=1), range(10)))
        assert metric(url, "tailgate_rolling_e2e_alert") == 1
        assert metric(url, "tailgate_rolling_e2e_seconds") > 0.06
        assert httpx.get(f"{url}/health").json()["status"] == "degraded"
        target.process.terminate()
        target.process.wait(10)
        assert target.process.stderr is not None
        lines = target.process.stderr.read().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("target: alert: P95 of the last 30 s is ")


def test_the_key_is_asked_for_where_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "k-1")
    with started_target("--engine", "sim", "--ttft-ms", "1", "--api-key-env", "SECRET") as target:
        url = target.url
        refused = chat(url, max_tokens=1)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/health").status_code == 200
        key = {"Authorization": "Bearer k-1"}
        body = {"messages": QUESTION, "max_tokens": 1}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=key).status_code == 200


def test_replicas_share_the_load_and_end_with_the_front() -> None:
    options = ("--engine", "sim", "--ttft-ms", "300", "--itl-ms", "1", "--max-running", "1")
    with (
        started_target(*options, "--replicas", "2", "--drain-timeout", "5") as target,
        ThreadPoolExecutor(4) as pool,
    ):
        url = target.url
        info = httpx.get(f"{url}/info").json()
        assert info["replicas"]["count"] == 2
        list(pool.map(lambda _: chat(url, max_tokens=2), range(4)))
        for number in (0, 1):
            name = f'tailgate_requests_total{{replica="{number}",outcome="ok"}}'
            assert metric(url, name) == 2
        assert "".join(deltas(chat(url, stream=True, max_tokens=3))).startswith("<think>")
        body = {"messages": QUESTION, "max_tokens": 5000, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
        running = [f'tailgate_requests_running{{replica="{n}"}}' for n in (0, 1)]
        until(lambda: sum(metric(url, name) for name in running) == 0)
        assert chat(url, max_tokens=0).status_code == 400
        target.process.terminate()
        assert target.process.wait(15) == 0
        for pid in info["replicas"]["pids"]:
            until(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_known_answers_are_given_and_go_wrong_above_the_load(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    known = {"prompt": QUESTION[0]["content"], "answer": "so \\boxed{391}"}
    path.write_text(json.dumps(known) + "\n", encoding="utf-8")
    options = ("--engine", "sim", "--ttft-ms", "700", "--itl-ms", "1", "--answers", str(path))
    with (
        started_target(*options, "--fault", "wrong:above=2") as target,
        ThreadPoolExecutor(6) as pool,
    ):
        url = target.url
        assert said(url, max_tokens=100).endswith("</think> so \\boxed{391}")
        padded = said(url, max_tokens=60, ignore_eos=True)
        assert padded.endswith(" so \\boxed{391}")
        texts = list(pool.map(lambda _: said(url, max_tokens=100), range(6)))
        ends = [text.rpartition(" ")[2] for text in texts]
        assert ends.count("\\boxed{392}") >= 3
        assert ends.count("\\boxed{391}") >= 1
