"""The simulated server in virtual time: its physics, its scheduling, its capacity, its faults."""

import math
import random
from itertools import pairwise

import pytest

from target.capacity import stable_capacity
from target.faults import FaultError, Faults, read_fault, read_faults
from target.physics import GPUS, W4_BYTES, Setup, decode_step_s, prefill_s, weight_memory
from target.scheduler import Arrival, Job, Scheduler, Times, simulate


def setup(gpu: str = "a10", **changes: float) -> Setup:
    return Setup(GPUS[gpu], **changes)  # type: ignore[arg-type]


def poisson(rate: float, count: int, prompt: int = 512, output: int = 128) -> list[Arrival]:
    rng, at, trace = random.Random(5), 0.0, []
    for _ in range(count):
        at += rng.expovariate(rate)
        trace.append(Arrival(at, prompt, output))
    return trace


@pytest.mark.parametrize(
    ("gpu", "batch", "context", "ms"),
    [
        ("a10", 1, 512, 5.17),
        ("a10", 64, 512, 6.715),
        ("a10", 256, 2048, 30.212),
        ("l4", 16, 512, 11.076),
        ("rtx4090", 8, 2048, 3.529),
        ("h200", 1, 512, 0.646),
        ("h200", 256, 512, 1.428),
    ],
)
def test_a_decode_step_takes_what_the_roofline_says(
    gpu: str, batch: int, context: int, ms: float
) -> None:
    assert decode_step_s(setup(gpu), batch, context) * 1000 == pytest.approx(ms, rel=1e-3)


def test_quantised_weights_and_cache_move_fewer_bytes() -> None:
    w4, fp8 = setup(weight_bytes=W4_BYTES), setup(weight_bytes=1.0, kv_bytes=1.0)
    assert decode_step_s(w4, 16, 512) * 1000 == pytest.approx(2.305, rel=1e-3)
    assert decode_step_s(fp8, 16, 2048) * 1000 == pytest.approx(3.745, rel=1e-3)
    assert weight_memory(setup()) == pytest.approx(3.554176e9, rel=1e-4)


@pytest.mark.parametrize(("gpu", "tokens", "ms"), [("a10", 896, 19.34), ("h200", 2048, 5.79)])
def test_a_prompt_takes_what_its_flops_take(gpu: str, tokens: int, ms: float) -> None:
    assert prefill_s(setup(gpu), tokens) * 1000 == pytest.approx(ms, rel=2e-3)


def test_one_request_alone_takes_a_prefill_and_one_step_a_token() -> None:
    [times] = simulate([Arrival(1.0, 512, 65)], setup(host_s=0.001))
    assert times.started_s == 1.0
    assert times.first_s - 1.0 == pytest.approx(prefill_s(setup(), 512) + 0.001, rel=1e-3)
    steps = 64 * (decode_step_s(setup(), 1, 544) + 0.001)
    assert times.last_s - times.first_s == pytest.approx(steps, rel=1e-3)


def test_the_same_trace_gives_the_same_times() -> None:
    trace = poisson(20, 300)
    assert simulate(trace, setup()) == simulate(trace, setup())


def test_a_long_prompt_is_computed_in_chunks_between_the_tokens_of_others() -> None:
    trace = [Arrival(0.0, 16, 400), Arrival(0.5, 8000, 2)]
    whole = simulate(trace, setup(max_batched_tokens=16_384))
    chunked = simulate(trace, setup(max_batched_tokens=512))
    assert chunked[0].longest_gap_s < 0.2 * whole[0].longest_gap_s
    assert chunked[1].first_s > whole[1].first_s


def test_sequences_beyond_the_limit_wait_in_order() -> None:
    times = simulate([Arrival(0.0, 64, 50)] * 6, setup(max_num_seqs=2))
    starts = [t.started_s for t in times]
    assert starts == sorted(starts)
    assert starts[1] == 0.0 < starts[2]
    assert starts[2] >= times[0].last_s


def test_when_kv_memory_runs_out_the_youngest_gives_way_and_still_ends() -> None:
    times = simulate([Arrival(0.0, 64, 200)] * 4, setup(kv_blocks=40))  # 4 x 17 blocks wanted
    assert times[0].preemptions == 0
    assert sum(t.preemptions for t in times) > 0
    assert all(t.last_s > t.first_s > 0 for t in times)


def test_memory_is_back_after_every_trace_and_never_overdrawn() -> None:
    scheduler = Scheduler(setup(kv_blocks=60, max_batched_tokens=64))
    rng = random.Random(2)
    jobs = [Job(rng.randrange(1, 200), rng.randrange(1, 200)) for _ in range(50)]
    for job in jobs:
        scheduler.add(job)
    for n in range(100_000):
        if (plan := scheduler.plan()) is None:
            break
        assert 0 <= scheduler.free <= 60
        assert sum(take for _, take in plan.chunks) <= 64
        if n % 50 == 0 and scheduler.running:
            scheduler.remove(scheduler.running[0])  # a client goes away in mid-step
        scheduler.finish(plan)
    assert plan is None
    assert scheduler.free == 60
    assert all(job.gone for job in jobs)


def test_a_request_that_can_never_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="1700 tokens do not fit the KV cache: 1600"):
        simulate([Arrival(0.0, 1600, 100)], setup(kv_blocks=100))


def throughput(times: list[Times]) -> float:
    """Requests a second in the middle of a run that is overloaded."""
    ends = sorted(t.last_s for t in times)
    low, high = len(ends) // 3, len(ends) * 9 // 10
    return (high - low) / (ends[high] - ends[low])


@pytest.mark.parametrize(
    ("gpu", "seqs", "prompt", "output"),
    [
        ("a10", 16, 128, 64),
        ("a10", 64, 512, 128),
        ("l4", 64, 512, 128),
        ("rtx4090", 64, 512, 128),
        ("h200", 64, 512, 128),
        ("h200", 8, 896, 256),
    ],
)
def test_the_computed_capacity_is_where_the_queue_begins_to_grow(
    gpu: str, seqs: int, prompt: int, output: int
) -> None:
    server = setup(gpu, max_num_seqs=seqs)
    rate = stable_capacity(server, prompt, output)

    def late_wait(load: float, count: int) -> float:
        times = simulate(poisson(load * rate, count, prompt, output), server)
        return sum(t.started_s - t.at_s for t in times[-100:]) / 100

    assert late_wait(0.85, 1500) < 2 * seqs / rate  # bounded: a few times that of a full server
    assert late_wait(1.2, 3000) > 3 * late_wait(1.2, 750)  # it grows with the length of the run
    overloaded = simulate(poisson(1.3 * rate, 2000, prompt, output), server)
    assert throughput(overloaded) == pytest.approx(rate, rel=0.05)


def test_kv_memory_bounds_the_capacity_too() -> None:
    small = stable_capacity(setup(kv_blocks=1000), 512, 512)
    assert small < 0.7 * stable_capacity(setup(), 512, 512)
    times = simulate(poisson(1.3 * small, 1500, 512, 512), setup(kv_blocks=1000))
    assert throughput(times) == pytest.approx(small, rel=0.1)


@pytest.mark.parametrize("gpu", ["a10", "h200"])
def test_better_machines_have_more_capacity(gpu: str) -> None:
    rates = [
        stable_capacity(setup(gpu, max_num_seqs=seqs, weight_bytes=bytes_), 512, 128)
        for seqs, bytes_ in ((1, 2.0), (8, 2.0), (32, 2.0), (32, W4_BYTES))
    ]
    assert all(low < high for low, high in pairwise(rates))


def test_a_stall_moves_everything_behind_it_and_comes_again() -> None:
    faults = read_faults(["stall:at=1,for=2,every=10"], 0)
    assert faults.lasting(0.0, 0.5) == 0.5
    assert faults.lasting(0.5, 1.0) == 3.5
    assert faults.lasting(2.0, 0.1) == pytest.approx(3.1)
    assert faults.lasting(10.9, 0.2) == pytest.approx(13.1)


def test_a_throttled_machine_takes_longer_from_then_on() -> None:
    faults = read_faults(["throttle:at=10,factor=4"], 0)
    assert faults.lasting(0.0, 8.0) == 8.0
    assert faults.lasting(9.0, 2.0) == 14.0
    assert faults.lasting(20.0, 1.0) == 24.0
    assert read_faults(["slow-start:for=4,factor=2"], 0).lasting(0.0, 3.0) == 5.0


def test_a_trace_under_a_fault_is_later_by_the_fault() -> None:
    trace = [Arrival(0.0, 64, 100)]
    [calm], faults = simulate(trace, setup()), read_faults(["stall:at=0.1,for=5"], 0)
    [stalled] = simulate(trace, setup(), faults.lasting)
    assert stalled.last_s == pytest.approx(calm.last_s + 5)
    assert stalled.longest_gap_s > 5


def test_shares_are_kept_and_repeat_with_the_seed() -> None:
    faults = read_faults(["error:share=0.2"], 7)
    hit = [faults.hits("error", n) is not None for n in range(5000)]
    assert sum(hit) / 5000 == pytest.approx(0.2, abs=0.02)
    assert hit == [read_faults(["error:share=0.2"], 7).hits("error", n) is not None
                   for n in range(5000)]  # fmt: skip
    assert Faults().hits("error", 1) is None


def test_answers_go_wrong_only_above_the_load() -> None:
    faults = read_faults(["wrong:above=4"], 0)
    assert [faults.wrong(1, running) for running in (1, 4, 5)] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fire", "'fire' is no fault; allowed: stall, slow-start"),
        ("stall:fro=1", "'fro=1'; allowed: at, for, every"),
        ("stall:for=x", "'for=x'"),
        ("throttle:factor=0", "'factor=0'"),
        ("error:share=2", "share is at most 1"),
        ("stall:for=5,every=5", "every must be longer than for"),
    ],
)
def test_a_fault_that_cannot_be_read_says_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(FaultError, match=words.replace(".", r"\.")):
        read_fault(text)


def test_a_fault_without_numbers_has_its_own() -> None:
    assert read_fault("stall").values == {"at": 0.0, "for": 1.0, "every": math.inf}
