"""The simulated engine: its times are those that were asked for, and its slots are bounded."""

import argparse
import asyncio
import json
import math
import random
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from target.sim import waits
from target.sim_text import encode
from tests.serving import running_target, started_target
from tests.target.asking import QUESTION, chat, events, held, metric, until


def sim_args(**options: float) -> argparse.Namespace:
    return argparse.Namespace(
        **{"ttft_ms": 40.0, "itl_ms": 8.0, "ttft_sigma": 0.0, "itl_sigma": 0.0, **options}
    )


def test_fixed_times_are_the_same_each_time() -> None:
    assert list(islice(waits(random.Random(1), sim_args()), 4)) == [0.04, 0.008, 0.008, 0.008]


def test_log_normal_times_have_the_asked_median_and_spread() -> None:
    drawn = list(islice(waits(random.Random(1), sim_args(itl_sigma=0.5)), 20_001))[1:]
    assert statistics.median(drawn) == pytest.approx(0.008, rel=0.02)
    assert statistics.stdev(math.log(value) for value in drawn) == pytest.approx(0.5, rel=0.02)


def test_a_token_of_a_prompt_depends_on_its_text_only() -> None:
    assert encode("12 abc") == encode("12 abc")
    assert encode("abc")[0] != encode("abd")[0]
    assert len(encode("你好吗？ 12")) == 6


def test_the_served_times_are_never_shorter_than_asked() -> None:
    with running_target("--engine", "sim", "--ttft-ms", "60", "--itl-ms", "10") as url:
        start = time.monotonic()
        got = events(chat(url, stream=True, max_tokens=11))
        wall_s = time.monotonic() - start
    timings = got[-1]["timings"]
    assert 60 <= timings["prefill_ms"] < 160
    assert 99 <= timings["decode_ms"] < 250  # ten gaps; a token is due from the start, not the last
    assert wall_s >= 0.16


def test_requests_wait_in_line_and_the_next_one_over_the_bound_is_refused() -> None:
    options = ("--ttft-ms", "2000", "--itl-ms", "1", "--max-running", "1", "--max-queue", "2")
    with running_target("--engine", "sim", *options) as url, ThreadPoolExecutor(3) as pool:
        answers = []
        for n in range(3):  # one after the other, so that their order is known
            answers.append(pool.submit(chat, url, max_tokens=2))
            until(lambda n=n: held(url) == n + 1)  # type: ignore[misc]
        refused = chat(url)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "server_busy"
        assert chat(url, stream=True).status_code == 503  # a stream says so by its status too
        queued = [answer.result().json()["timings"]["queue_ms"] for answer in answers]
        assert queued == sorted(queued)
        assert queued[0] < 1500
        assert queued[2] > 2000  # two before it, of which the first had not ended when it came
        assert metric(url, 'tailgate_requests_total{outcome="rejected"}') == 2
        assert metric(url, 'tailgate_requests_total{outcome="ok"}') == 3
        assert held(url) == 0


def test_the_metrics_count_tokens_and_times(sim: str) -> None:
    names = (
        "prompt_tokens_total",
        "output_tokens_total",
        "ttft_seconds_count",
        "itl_seconds_count",
    )
    before = [metric(sim, f"tailgate_{name}") for name in names]
    usage = chat(sim, max_tokens=9).json()["usage"]
    gained = [
        metric(sim, f"tailgate_{name}") - then for name, then in zip(names, before, strict=True)
    ]
    assert gained == [usage["prompt_tokens"], 9, 1, 8]
    assert metric(sim, 'tailgate_ttft_seconds_bucket{le="0.001"}') == 0


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_core_streams_more_than_3000_tokens_a_second() -> None:
    """By the CPU time of the server, which does not depend on what else this machine does."""
    options = ("--ttft-ms", "1", "--itl-ms", "0.2", "--max-running", "16")
    with started_target("--engine", "sim", *options) as target:
        host, port = urlsplit(target.url).hostname, urlsplit(target.url).port

        async def stream() -> int:
            reader, writer = await asyncio.open_connection(host, port, limit=2**24)
            body = {"messages": QUESTION, "max_tokens": 600, "stream": True}
            content = json.dumps(body).encode()
            head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
            writer.write(f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
            answer = await reader.readuntil(b"[DONE]")
            writer.close()
            await writer.wait_closed()
            return answer.count(b'"content"')

        async def all_streams() -> list[int]:
            return await asyncio.gather(*(stream() for _ in range(16)))

        before = cpu_s(target.process.pid)
        counts = asyncio.run(all_streams())
        used_s = cpu_s(target.process.pid) - before
    assert min(counts) >= 600
    assert sum(counts) / used_s > 3000


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_slot(stream: bool) -> None:
    with running_target("--engine", "sim", "--itl-ms", "20", "--max-running", "1") as url:
        leave_midway(url, stream=stream)
        until(lambda: metric(url, "tailgate_requests_running") == 0)
        assert metric(url, 'tailgate_requests_total{outcome="cancelled"}') == 1
        assert chat(url, max_tokens=2).json()["timings"]["queue_ms"] < 100
        assert metric(url, "tailgate_output_tokens_total") < 500  # of the 1000 it had asked for


def test_a_client_that_goes_away_while_it_waits_leaves_the_line() -> None:
    options = ("--ttft-ms", "2000", "--max-running", "1")
    with running_target("--engine", "sim", *options) as url:
        first = threading.Thread(target=chat, args=(url,), kwargs={"max_tokens": 1})
        first.start()
        until(lambda: metric(url, "tailgate_requests_running") == 1)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}/v1/chat/completions",
                json={"messages": QUESTION, "stream": True},
                timeout=0.3,
            )
        until(lambda: metric(url, "tailgate_requests_waiting") == 0)
        assert metric(url, "tailgate_requests_running") == 1
        first.join()
        assert metric(url, 'tailgate_requests_total{outcome="ok"}') == 1


def leave_midway(url: str, *, stream: bool) -> None:
    """Ask for 1000 tokens, and close the connection while they come."""
    body = {"messages": QUESTION, "max_tokens": 1000, "stream": stream}
    if not stream:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/chat/completions", json=body, timeout=0.5)
        return
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert sum(1 for _ in islice(lines, 10)) == 10
