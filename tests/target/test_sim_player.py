"""The simulated GPU in real time: what a client sees is what the scheduler computed."""

import asyncio
import time

import pytest

from target.engines import EngineError, Params
from target.physics import GPUS, Setup
from target.scheduler import Arrival, simulate
from target.sim_text import falsified
from tests.serving import running_target
from tests.target.asking import chat, events, metric
from tests.target.building import answer, built

L4 = ("--engine", "sim", "--gpu", "l4", "--max-num-seqs", "4")


def test_requests_take_as_long_as_in_virtual_time() -> None:
    trace = [Arrival(0.03 * n, 200, 20) for n in range(10)]
    computed = simulate(trace, Setup(GPUS["l4"], max_num_seqs=4))

    async def play() -> list[float]:
        engine = built(*L4)
        start = time.monotonic()

        async def one(arrival: Arrival) -> float:
            await asyncio.sleep(start + arrival.at_s - time.monotonic())
            await answer(engine, [7] * arrival.prompt, Params(arrival.output))
            return time.monotonic() - start

        return list(await asyncio.gather(*(one(arrival) for arrival in trace)))

    ends = asyncio.run(play())
    late_s = sorted(end - times.last_s for end, times in zip(ends, computed, strict=True))
    assert late_s[0] > -0.02
    assert late_s[len(late_s) // 2] < 0.05  # the others may meet a busy machine


def test_the_stages_of_a_queued_request_are_told() -> None:
    async def two() -> list[object]:
        engine = built("--engine", "sim", "--gpu", "l4", "--max-num-seqs", "1")
        both = await asyncio.gather(*(answer(engine, [7] * 200, Params(10)) for _ in range(2)))
        return [timings for _, timings in both]

    first, second = asyncio.run(two())
    assert first.queue_s < 0.02  # type: ignore[attr-defined]
    assert second.queue_s > 0.1  # type: ignore[attr-defined]
    assert second.decode_s == pytest.approx(9 * 0.0118, rel=0.3)  # type: ignore[attr-defined]


def test_the_same_over_http_with_its_counts_on_metrics() -> None:
    with running_target(*L4, "--reasoning", "none") as url:
        got = events(chat(url, stream=True, max_tokens=20))
        assert got[-1]["timings"]["decode_ms"] == pytest.approx(19 * 11.8, rel=0.25)
        assert metric(url, "tailgate_kv_cache_usage_ratio") == 0
        assert metric(url, "tailgate_preemptions_total") == 0
        allocated = metric(url, "tailgate_gpu_memory_allocated_bytes")
        assert allocated == pytest.approx(3.554e9, rel=0.001)
        assert metric(url, "tailgate_gpu_memory_reserved_bytes") > 20e9


def test_a_gpu_without_room_for_a_cache_is_refused() -> None:
    with pytest.raises(EngineError, match="leaves no KV memory on A10"):
        built("--engine", "sim", "--gpu", "a10", "--gpu-memory-utilization", "0.1")


def test_a_wrong_answer_is_never_the_right_one() -> None:
    assert falsified("x = 12, y = 3") == "x = 13, y = 4"
    for text in ("yes", "abba", "", "7"):
        assert falsified(text) != text
