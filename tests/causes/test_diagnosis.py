"""Each word of the diagnosis, from numbers that were measured on an H200 where there are such."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slo.causes import causes
from slo.diagnosis import WORDS, Diagnosis, diagnose
from slo.remedies import NEXT, SENTENCES
from slo.rules import RULES
from slo.signals import GpuSignals, Growth, Load, Server, Signals, Throttling
from slo.thresholds import LIMITS, TABLE
from tests.causes.evidence import evident_run, told

LOAD = Load(
    open=8.0, decoding=8.0, busy=1.0, context=256.0, tokens_per_s=400.0, out_of_memory=0,
    ttft_p50_s=0.05, prefill_p50_s=0.04, prefill_told=True, queue_share=0.0, tokenize_share=0.01,
    tpot_p50_s=0.02, tpot_p90_s=0.021,
)  # fmt: skip
GPU = GpuSignals(
    gpu=0, samples=60, seconds=30.0, util_pct=50.0, util_mem_pct=10.0, sm_pct=20.0, tensor_pct=5.0,
    dram_pct=10.0, power_w=200.0, throttling=Throttling(0.0, "power cap"), clock_ratio=1.0,
    limit_lowered=False, used=None,
)  # fmt: skip
SERVER = Server(
    running=8.0, waiting=0.0, kv_usage_p95=0.2, preemptions=0.0, cpu_pct=60.0, flops_per_s=None,
    bytes_per_s=None, allocated=None, reserved=None,
)  # fmt: skip
SIGNALS = Signals(
    seconds=30.0, load=LOAD, gpu=GPU, gpu_absent=None, server=SERVER, mbu=0.1, mfu=0.01, estimate=""
)


def with_gpu(**changes: Any) -> Signals:
    return replace(SIGNALS, gpu=replace(GPU, **changes))


# util.gpu, GPM tensor, GPM DRAM, MBU: what an H200 showed, and the case that it was.
MEASURED = [
    ("host-bound", 22, 0.2, 3.0, 3.0),  # generate, one sequence
    ("host-bound", 31, 1.8, 5.5, 3.8),  # generate, 64 sequences
    ("host-bound", 18, 1.5, 3.2, 2.3),  # generate, a prompt of 8,192 tokens
    ("host-bound", 57, 0.9, 13.6, 14.5),  # static cache, compiled
    ("host-bound", 50, 2.0, 5.4, 5.0),  # continuous batching of 256 without graphs
    ("wasted-traffic", 94, 3.3, 9.5, 3.0),  # continuous batching with graphs, paged sdpa
    ("small-kernels", 94, 3.3, 7.0, 5.0),
    ("bandwidth-bound", 97, 0.0, 81.9, 75.0),  # a copy
    ("compute-bound", 95, 75.9, 18.8, 2.0),  # a matrix product
]


@pytest.mark.parametrize(("word", "util", "tensor", "dram", "mbu"), MEASURED)
def test_what_an_h200_showed_gets_its_word(
    word: str, util: float, tensor: float, dram: float, mbu: float
) -> None:
    signals = with_gpu(util_pct=util, tensor_pct=tensor, dram_pct=dram)
    found = diagnose(replace(signals, mbu=mbu / 100))
    assert found.word == word
    assert found.confidence in ("medium", "high")
    assert found.next_step.startswith(NEXT[word])


def test_gpu_util_alone_decides_nothing() -> None:
    copying = with_gpu(util_pct=95, tensor_pct=0.0, dram_pct=82.0)
    multiplying = with_gpu(util_pct=95, tensor_pct=76.0, dram_pct=19.0)
    assert diagnose(copying).word == "bandwidth-bound"
    assert diagnose(multiplying).word == "compute-bound"
    blind = replace(with_gpu(util_pct=95, tensor_pct=None, dram_pct=None), mbu=None, mfu=None)
    found = diagnose(blind)
    assert found.word == "mixed"
    assert found.confidence == "low"
    assert "compute-bound" in found.doubts[0]


def test_no_load_comes_before_all_else() -> None:
    idle = replace(with_gpu(util_pct=0, dram_pct=0.0), load=replace(LOAD, open=0.02))
    found = diagnose(idle)
    assert (found.word, found.confidence) == ("no-load", "high")
    assert found.numbers == "requests open 0.02 (< 0.2), GPU-util 0 % (< 5 %)"


def test_throttling_comes_before_its_consequences() -> None:
    hot = with_gpu(throttling=Throttling(0.4, "hardware thermal limit"), tensor_pct=70.0)
    found = diagnose(hot)
    assert found.word == "throttled"
    assert "hardware thermal limit 40 % of the time" in found.numbers
    assert found.also == ("compute-bound",)
    assert diagnose(with_gpu(throttling=Throttling(0.01, "power cap"))).word != "throttled"


def test_a_power_cap_under_full_tensor_cores_is_their_own_limit() -> None:
    """An H200 in prefill: 692 W, 0.83 of its clock, tensor cores at 53 %."""
    capped = {"throttling": Throttling(1.0, "power cap"), "clock_ratio": 0.83}
    full = diagnose(with_gpu(**capped, tensor_pct=53.0, util_pct=100))
    assert full.word == "compute-bound"
    rule = next(rule for rule in full.rules if rule.word == "throttled")
    assert "at the power cap 100 % of the time, as full tensor cores are" in rule.numbers
    # The same cap is throttling where it takes much speed, where someone lowered the limit, where
    # the tensor cores are not what draws the power, and where heat is the cause.
    for change in (
        {"clock_ratio": 0.5},
        {"limit_lowered": True},
        {"tensor_pct": 20.0},
        {"throttling": Throttling(1.0, "hardware thermal limit")},
        {"clock_ratio": None},
    ):
        assert diagnose(with_gpu(**{**capped, "tensor_pct": 53.0, **change})).word == "throttled"


@pytest.mark.parametrize(
    ("server", "load"),
    [
        ({"kv_usage_p95": 0.97}, {}),
        ({"kv_usage_p95": None, "preemptions": 3.0}, {}),
        ({}, {"out_of_memory": 2}),
    ],
)
def test_a_full_cache_a_preemption_or_an_oom_is_kv_pressure(
    server: dict[str, Any], load: dict[str, Any]
) -> None:
    signals = replace(SIGNALS, server=replace(SERVER, **server), load=replace(LOAD, **load))
    assert diagnose(signals).word == "kv-pressure"


def test_without_counters_the_roofline_decides_and_is_called_an_estimate() -> None:
    a10 = with_gpu(util_pct=96, tensor_pct=None, dram_pct=None)
    found = diagnose(replace(a10, mbu=0.71, mfu=0.02))
    assert found.word == "bandwidth-bound"
    assert "MBU about 71 %" in found.numbers
    assert "estimate" in found.doubts[0]
    assert found.confidence == "medium"
    assert diagnose(replace(a10, mbu=0.02, mfu=0.55)).word == "compute-bound"


def test_an_estimate_does_not_speak_against_a_counter_that_is_far_below() -> None:
    idle_cores = with_gpu(util_pct=35, tensor_pct=3.8, dram_pct=25.0)
    assert diagnose(replace(idle_cores, mfu=1.09, mbu=0.2)).word == "host-bound"
    nearly = diagnose(replace(with_gpu(util_pct=95, tensor_pct=46.0, dram_pct=20.0), mfu=0.45))
    assert nearly.word == "compute-bound"


def test_low_utilisation_bounds_what_the_missing_counters_could_show() -> None:
    old = with_gpu(util_pct=15, tensor_pct=None, dram_pct=None)
    found = diagnose(replace(old, mbu=None, mfu=None))
    assert found.word == "host-bound"
    assert "DRAM, at most GPU-util: 15 %" in found.numbers


def test_a_busy_thread_and_a_slow_tokenizer_are_named() -> None:
    host = with_gpu(util_pct=25, dram_pct=3.0)
    busy = replace(host, server=replace(SERVER, cpu_pct=98.0))
    assert "98 % of a core" in diagnose(busy).next_step
    slow = replace(host, load=replace(LOAD, tokenize_share=0.6))
    assert "60% of TTFT goes to the tokenizer" in diagnose(slow).next_step


def test_queueing_needs_waiting_a_late_first_token_and_steady_decoding() -> None:
    crowd = replace(LOAD, ttft_p50_s=2.0, queue_share=0.9)
    waiting = replace(SERVER, waiting=12.0)
    busy = with_gpu(util_pct=80, dram_pct=40.0, tensor_pct=30.0)
    signals = replace(busy, load=crowd, server=waiting)
    assert diagnose(signals).word == "queueing"
    assert diagnose(replace(signals, server=SERVER)).word == "mixed"
    slower = replace(crowd, tpot_p90_s=0.05)
    assert diagnose(replace(signals, load=slower)).word == "mixed"
    # The server's own timings stand in for metrics that it does not offer.
    assert diagnose(replace(signals, server=None)).word == "queueing"


def test_memory_growth_needs_ten_minutes_and_goes_by_allocated_bytes() -> None:
    rising, level = Growth(900, 4000, 0.5, 0.2), Growth(900, 4000, 0.001, 0.0)
    busy = replace(with_gpu(util_pct=80, dram_pct=40.0, tensor_pct=30.0), seconds=900)
    used = replace(busy, gpu=replace(busy.gpu or GPU, used=rising))
    told = diagnose(used)
    assert told.word == "memory-growth"
    assert "it may be its allocator" in told.next_step
    # The driver sees growth, the tensors do not: that is the allocator, no leak.
    allocator = replace(used, server=replace(SERVER, allocated=level))
    assert diagnose(allocator).word == "mixed"
    leak = replace(used, server=replace(SERVER, allocated=rising))
    assert "allocated memory rose by 50 %" in diagnose(leak).numbers
    short = replace(used, gpu=replace(busy.gpu or GPU, used=Growth(300, 4000, 0.5, 0.2)))
    rule = diagnose(short).rules[-1]
    assert (rule.outcome, rule.numbers) == (
        "not checked",
        "memory watched for 300 s; needed are 600 s",
    )


def test_too_few_gpu_samples_are_no_evidence() -> None:
    found = diagnose(with_gpu(samples=12, seconds=6.0, dram_pct=80.0))
    assert found.word == "not-measured"
    assert found.numbers == "12 GPU samples over 6 s are too few; needed are 20 over 10 s"


def test_without_a_gpu_what_the_server_says_still_counts() -> None:
    blind = replace(SIGNALS, gpu=None, gpu_absent="no NVML library")
    assert diagnose(blind).word == "not-measured"
    assert diagnose(blind).numbers == "no NVML library"
    full = diagnose(replace(blind, server=replace(SERVER, preemptions=4.0)))
    assert full.word == "kv-pressure"
    assert full.doubts == ("not excluded, for want of numbers: throttled",)


def test_a_number_near_its_threshold_lowers_the_confidence() -> None:
    sure = diagnose(with_gpu(dram_pct=82.0, util_pct=97))
    near = diagnose(with_gpu(dram_pct=61.0, util_pct=97))
    assert (sure.confidence, near.confidence) == ("high", "medium")
    assert near.doubts == ("a number lies near its threshold",)


def test_every_word_has_a_sentence_and_a_next_step_and_every_limit_a_source() -> None:
    assert set(WORDS) == set(SENTENCES) == set(NEXT)
    assert [word for word, _ in RULES] == list(WORDS[:-2])
    assert all(one.source and one.unit for one in TABLE.values())
    assert set(LIMITS) == set(TABLE)


def diagnosed(path: Path, **evidence: Any) -> Diagnosis:
    return causes(evident_run(path, **evidence)).diagnosis


def test_a_run_directory_is_read_and_diagnosed(tmp_path: Path) -> None:
    gpu = {"util_gpu_pct": 25, "dram_active_pct": 3.1, "tensor_active_pct": 0.4, "power_w": 141}
    found = causes(evident_run(tmp_path / "run", gpu=gpu, server={"running": 4, "waiting": 0}))
    assert found.diagnosis.word == "host-bound"
    assert found.signals.load.open == pytest.approx(4.5, rel=0.03)
    assert found.signals.gpu is not None
    assert found.signals.gpu.power_w == 141


def test_mbu_follows_from_tokens_batch_and_context(tmp_path: Path) -> None:
    found = causes(evident_run(tmp_path / "run", gpu={"util_gpu_pct": 50}))
    # 10 requests/s of 0.4 s and 10 tokens each: 4 decode at once, and each step takes 40 ms.
    load = found.signals.load
    assert load.decoding == pytest.approx(4, rel=0.03)
    assert load.tokens_per_s == pytest.approx(100, rel=0.03)
    steps_per_s = 100 / 4
    traffic = steps_per_s * 3_087_428_608 + 100 * (133 + 1) * 28_672
    assert found.signals.mbu == pytest.approx(traffic / 4814.3e9, rel=0.03)


def test_a_model_without_a_known_shape_has_no_estimate(tmp_path: Path) -> None:
    run = evident_run(tmp_path / "run", gpu={"util_gpu_pct": 50})
    (run / "target.json").unlink()
    found = causes(run)
    assert found.signals.mbu is None
    assert found.signals.estimate == "no shape of the model tiny is known here"


def test_the_drivers_counters_say_more_than_the_moment_of_sampling(tmp_path: Path) -> None:
    def hot(at_s: float) -> dict[str, Any]:
        return {"util_gpu_pct": 90, "clocks_event_reasons": 0, "throttled_power_s": at_s * 0.3}

    found = diagnosed(tmp_path / "counted", gpu=hot)
    assert found.word == "throttled"
    assert "power cap 30 % of the time" in found.numbers
    masked = diagnosed(
        tmp_path / "masked",
        gpu=lambda at_s: {"util_gpu_pct": 90, "clocks_event_reasons": 0x40 if at_s > 15 else 1},
    )
    assert masked.word == "throttled"
    assert "hardware thermal limit" in masked.numbers


def test_the_busiest_gpu_is_diagnosed(tmp_path: Path) -> None:
    run = evident_run(tmp_path / "run", gpu={"util_gpu_pct": 97, "dram_active_pct": 80})
    path = run / "gpu.jsonl"
    idle = path.read_text().replace('"gpu": 0', '"gpu": 1').replace("97", "0").replace("80", "0")
    path.write_text(path.read_text() + "".join(idle.splitlines(keepends=True)[1:]))
    found = causes(run)
    assert found.signals.gpu is not None
    assert found.signals.gpu.gpu == 0
    assert found.diagnosis.word == "bandwidth-bound"


def test_memory_that_grows_over_twenty_minutes_is_seen(tmp_path: Path) -> None:
    run = evident_run(
        tmp_path / "run",
        seconds=1200,
        rate_per_s=0.5,
        server=lambda at_s: {"running": 1, "waiting": 0, "allocated_mib": 4000 + at_s},
    )
    found = causes(run)
    assert found.diagnosis.word == "memory-growth"
    growth = found.signals.server and found.signals.server.allocated
    assert growth is not None
    assert math.isclose(growth.share, 0.3, rel_tol=0.05)


def test_stages_are_read_from_the_servers_own_timings(tmp_path: Path) -> None:
    run = evident_run(
        tmp_path / "run",
        change=told(queue=20.0, tokenize=1.0, prefill=25.0, decode=380.0),
    )
    stages = {stage.name: stage.mean_s for stage in causes(run).stages}
    assert stages["queue"] == pytest.approx(0.020)
    assert stages["decode"] == pytest.approx(0.380)
    assert stages["elsewhere"] == pytest.approx(0.45 - 0.426, abs=1e-6)


@pytest.mark.parametrize("name", ["gpu.jsonl", "server.jsonl"])
def test_a_spoilt_log_is_said_and_the_rest_is_used(tmp_path: Path, name: str) -> None:
    run = evident_run(tmp_path / "run", gpu={"util_gpu_pct": 97, "dram_active_pct": 80}, server={})
    (run / name).write_text('{"type": "header", "schema": "9.0"}\n')
    found = causes(run)
    said = found.gpu_absent if name == "gpu.jsonl" else found.server_absent
    assert said is not None
    assert "schema '9.0' is unknown here" in said
