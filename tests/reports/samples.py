"""Verdicts, summaries and runs made by hand: one of each kind that a report must show."""

import math
from dataclasses import replace

from slo.rundir import Counts, Lateness, Run, Stopped, WorkerInfo
from slo.summary import (
    FailureKind,
    GpuSecond,
    GpuView,
    LatencyLine,
    SecondsLine,
    Summary,
)
from slo.verdict import Check, Result, Row, Verdict

HOSTILE = "<script>alert(1)</script> \"'&|` *b* [x](http://evil.example/) " + (
    "$5 算错了 \x1b[31m\x00\ud800\u202e"
)

RUN = Run(
    id="20261130T020000Z-math-3qps",
    label="math-3qps",
    seed=20261130,
    arrival="poisson",
    rate_per_s=3.0,
    duration_s=120.0,
    warmup_s=15.0,
    mix={"math": 0.6, "code": 0.4},
    target_url="http://127.0.0.1:8000",
    api_path="/v1/chat/completions",
    model="deepseek-r1-distill-qwen-1.5b",
    timeout_s=60.0,
    max_in_flight=180,
    sampling={"temperature": 0.6, "top_p": 0.95, "max_tokens": 256},
    reasoning="tag",
    versions={"tailgate": "0.1.0", "python": "3.11.9", "locust": "2.43.4", "numpy": "2.3.1"},
    git_sha="e4850dea1b2c3d4e5f60718293a4b5c6d7e8f901",
    host={"name": "gpu-04", "cpus": 16, "system": "Linux 6.8.0"},
    workers=(WorkerInfo(0, "worker-0", 120_000, 45_000, 405),),
    started_at="2026-11-30T02:00:00.123456Z",
    t0_wall_ns=1_796_004_000_000_000_000,
    t0_mono_ns=5_000_000_000,
    counts=Counts(scheduled=405, sent=405, completed=403, failed=2),
    lateness=Lateness(p50_ms=0.21, p95_ms=0.84, p99_ms=1.7, max_ms=4.9),
    finished=True,
)

CHECKS = (
    Check("lateness", "P99 1.7 ms", "21 ms", "ok", "Requests were sent when they were due."),
    Check("dropped", "0", "0", "ok", "The generator started every arrival."),
    Check("achieved rate", "100 %", "99 %", "ok", "The target was sent the load that was planned."),
    Check("counts", "405 of 405", "equal", "ok", "Every arrival has one record."),
    Check("token counts", "-", "equal", "not checked", "The target reports no usage.", ("tpot",)),
)


def row(
    objective: str = "ttft p95",
    metric: str = "ttft",
    scenario: str = "all",
    unit: str = "s",
    measured: float | None = 0.398,
    low: float | None = 0.381,
    high: float | None = 0.412,
    censored: str | None = None,
    n: int = 360,
    limit: str = "<= 420ms",
    limit_value: float = 0.42,
    confidence: float = 0.95,
    severity: str = "gate",
    outcome: Result = Result.PASS,
    why: str = "The whole interval lies below the limit.",
    next_step: str = "",
) -> Row:
    return Row(objective, metric, scenario, unit, measured, low, high, censored, n, limit,
               limit_value, confidence, severity, outcome, why, next_step)  # type: ignore[arg-type]  # fmt: skip


ROWS = (
    row(),
    row("e2e p95", "e2e", "math", measured=1.284, low=1.21, high=1.363, n=214, limit="<= 1.5s",
        limit_value=1.5),
    row("error_rate", "error_rate", unit="1", measured=0.0, low=0.0, high=0.0083, limit="<= 2%",
        limit_value=0.02, why="At most 0.83 % of requests fail."),
    row("accuracy", "accuracy", "math", unit="1", measured=0.861, low=0.818, high=0.897, n=214,
        limit=">= 0.80", limit_value=0.8, why="The whole interval lies above the limit."),
)  # fmt: skip


def _latency(
    scenario: str, metric: str, n: int, failed: int, p50: float, spread: float
) -> LatencyLine:
    steps = {50.0: 0.0, 90.0: 1.28, 95.0: 1.64, 99.0: 2.33}
    values: dict[float, float | None] = {
        p: None if p / 100 * n > n - failed else p50 * math.exp(spread * z)
        for p, z in steps.items()
    }
    return LatencyLine(scenario, metric, n, failed, p50 * math.exp(spread**2 / 2),
                       p50 * math.exp(spread * 2.9), values)  # fmt: skip


def latencies(failed: int = 0, judged: int = 360) -> tuple[LatencyLine, ...]:
    shapes = {
        "ttft": (0.19, 0.45), "ttfat": (0.52, 0.4), "e2e": (0.81, 0.32), "tpot": (0.0121, 0.15),
        "itl": (0.0118, 0.3), "ttft_from_sent": (0.1895, 0.45), "e2e_from_sent": (0.8095, 0.32),
    }  # fmt: skip
    math_n = round(judged * 0.595)
    lines = []
    for metric, (p50, spread) in shapes.items():
        for scenario, n, slower in (
            ("all", judged, 1.0),
            ("math", math_n, 0.94),
            ("code", judged - math_n, 1.1),
        ):
            gaps = n * 63 if metric == "itl" else n
            bad = 0 if metric == "itl" or scenario == "math" else failed
            lines.append(_latency(scenario, metric, gaps, bad, p50 * slower, spread))
    return tuple(lines)


def seconds(count: int = 135, stall: tuple[int, int] | None = None) -> tuple[SecondsLine, ...]:
    lines = []
    for second in range(count):
        offered = (2, 4, 3, 5, 1, 3, 0, 4, 3, 5)[(second * 7 + second // 10) % 10]
        wave = 1 + 0.25 * math.sin(second / 6) + 0.1 * math.sin(second * 2.7)
        stalled = stall is not None and stall[0] <= second < stall[1]
        failed = offered if stalled else 0
        seen = offered > failed
        slow = 2.2 if stall is not None and stall[1] <= second < stall[1] + 8 else 1.0
        lines.append(
            SecondsLine(
                second=second, offered=offered, completed=offered - failed, failed=failed,
                ttft_p50_s=0.19 * wave * slow if seen else None,
                ttft_p95_s=0.33 * wave * slow if seen else None,
                e2e_p50_s=0.81 * wave * slow if seen else None,
                e2e_p95_s=1.2 * wave * slow if seen else None,
                output_tokens=64 * (offered - failed),
                in_flight=round((2 + wave) * (4 if stalled else slow)),
            )
        )  # fmt: skip
    return tuple(lines)


def gpu(count: int = 270, gpus: int = 1) -> GpuView:
    samples = tuple(
        GpuSecond(
            at_s=index / 2,
            gpu=number,
            util_pct=min(100.0, 71 + 14 * math.sin(index / 11 + number) + number * 3),
            mem_used_mib=None if 60 < index < 70 else 61_440.0 + 6 * index,
            power_w=412 + 60 * math.sin(index / 11 + number),
            temperature_c=54.0,
            sm_clock_mhz=1980.0,
        )
        for index in range(count)
        for number in range(gpus)
    )
    return GpuView(None, ("NVIDIA H200",) * gpus, samples)


TARGET: dict[str, object] = {
    "model": "deepseek-r1-distill-qwen-1.5b", "engine": "hf", "mode": "continuous",
    "dtype": "bfloat16", "device": "cuda:0", "flags": {"attention": "sdpa", "max_running": 32},
    "versions": {"torch": "2.13.0", "transformers": "5.10.4"}, "gpu": {"name": "NVIDIA H200"},
    "prefix_caching": False,
}  # fmt: skip

SUMMARY = Summary(
    judged=360, completed=360, failed=0, offered_per_s=3.0, achieved_per_s=3.0,
    output_tokens_per_s=191.7, tokens_per_chunk=1.02, latencies=latencies(), seconds=seconds(),
    failures=(), gpu=gpu(), target=TARGET,
)  # fmt: skip

FAILURES = (
    FailureKind("timeout_mid_stream", 9, 9 / 360, 131,
                "no bytes for 60.0 s after 41 tokens; the stream had not ended"),
    FailureKind("http_status", 3, 3 / 360, 204, "503 Service Unavailable: 队列已满, retry in 2 s"),
)  # fmt: skip


def _verdict(result: Result, sentence: str, **changes: object) -> Verdict:
    whole = Verdict(result, sentence, "deepseek-r1-distill-qwen-1.5b", RUN.id, ROWS, CHECKS)
    return replace(whole, **changes)  # type: ignore[arg-type]


Sample = tuple[Verdict, Summary, Run]

PASS: Sample = (
    _verdict(Result.PASS, "All 4 objectives are met at 3/s, with 95 % confidence."),
    SUMMARY,
    RUN,
)

FAIL: Sample = (
    _verdict(
        Result.FAIL,
        "At 3/s, ttft p95 is 512 ms where 420 ms is allowed; 2 of 5 objectives are missed.",
        rows=(
            row(measured=0.512, low=0.471, high=0.558, outcome=Result.FAIL,
                why="The whole interval lies above the limit: queueing makes 61 % of it.",
                next_step="Compare queue_ms with prefill_ms in requests.jsonl; if the queue "
                "dominates, raise --max-running or lower the rate that one replica takes."),
            row("e2e p95", "e2e", "code", measured=None, low=58.1, high=None, censored=">60s",
                n=146, limit="<= 1.5s", limit_value=1.5, outcome=Result.FAIL,
                why="12 of 146 requests failed, more than the 5 % that a P95 leaves.",
                next_step="Look at the failures first; their kinds are listed below."),
            row("e2e p95", "e2e", "math", measured=1.402, low=1.36, high=1.448, n=214,
                limit="<= 1.5s", limit_value=1.5),
            row("error_rate", "error_rate", unit="1", measured=12 / 360, low=0.0173, high=0.0575,
                limit="<= 5%", limit_value=0.05, severity="warn", outcome=Result.INCONCLUSIVE,
                why="The interval holds the limit.",
                next_step="About 240 more requests would decide it."),
            ROWS[3],
        ),
    ),
    replace(SUMMARY, completed=348, failed=12, latencies=latencies(12), failures=FAILURES,
            seconds=seconds(stall=(70, 79))),
    replace(RUN, counts=Counts(405, 405, 393, 12)),
)  # fmt: skip

INCONCLUSIVE: Sample = (
    _verdict(
        Result.INCONCLUSIVE,
        "Too few requests to decide ttft p95: 74 more would do.",
        rows=(
            row(measured=0.409, low=0.352, high=0.455, n=42, outcome=Result.INCONCLUSIVE,
                why="The interval holds the limit: 42 requests cannot tell.",
                next_step="Measure 74 more requests: --duration 39s at this rate."),
            row("gpu_memory_growth", "gpu_memory_growth", unit="1/h", measured=None, low=None,
                high=None, n=0, limit="<= 5%/h", limit_value=0.05, outcome=Result.INCONCLUSIVE,
                why="No GPU sample: no NVML library.", next_step="Run with --sidecar local."),
        ),
        notes=("The target keeps a prefix cache; every prompt of this run is unique.",),
    ),
    replace(SUMMARY, judged=42, completed=42, latencies=latencies(0, 42),
            seconds=seconds(19), tokens_per_chunk=None, gpu=GpuView("no NVML library")),
    replace(RUN, duration_s=14.0, warmup_s=5.0, git_sha=None),
)  # fmt: skip

INVALID: Sample = (
    _verdict(
        Result.INVALID,
        "The generator dropped 12 arrivals, so the target never had the load of this slo.yaml.",
        rows=tuple(replace(r, outcome=Result.INVALID, why="The run is void.") for r in ROWS[:2]),
        validity=(
            Check("dropped", "12", "0", "void", "The generator did not start 12.", ("*",)),
            Check("token counts", "4 differ", "equal", "void",
                  "Usage and text disagree in 4 requests.", ("tpot", "itl")),
            *CHECKS,
        ),
    ),
    SUMMARY,
    replace(RUN, finished=False, stopped=Stopped(81.0, "SIGINT"), lateness=None),
)  # fmt: skip

NO_DATA: Sample = (
    _verdict(Result.INVALID, "No request was judged.", rows=(), validity=()),
    Summary(0, 0, 0, 0.0, 0.0, 0.0, None, (), (), (), GpuView("the sidecar was off"), {}),
    replace(RUN, counts=Counts(0), versions={}, host={}, workers=(), mix={}, model=None,
            sampling={}, finished=False, lateness=None),
)  # fmt: skip


def _hostile() -> Sample:
    verdict, summary, run = FAIL
    bad = Check(HOSTILE, HOSTILE, HOSTILE, "void", HOSTILE, (HOSTILE,))
    rows = (row(HOSTILE, "ttft", HOSTILE, measured=0.5, limit=HOSTILE, outcome=Result.FAIL,
                why=HOSTILE, next_step=HOSTILE),
            row(censored=HOSTILE, measured=None, outcome=Result.FAIL))  # fmt: skip
    lines = tuple(
        replace(a, scenario=HOSTILE) if a.scenario == "code" else a for a in summary.latencies
    )
    return (
        replace(verdict, sentence=HOSTILE, service=HOSTILE, run_id=HOSTILE, rows=rows,
                validity=(bad,), notes=(HOSTILE,)),
        replace(summary, latencies=lines, target={HOSTILE: {HOSTILE: [HOSTILE]}},
                failures=(FailureKind(HOSTILE, 1, 0.1, 7, HOSTILE),),
                gpu=replace(gpu(20, 2), names=(HOSTILE, HOSTILE))),
        replace(run, id=HOSTILE, model=HOSTILE, mix={HOSTILE: 1.0}, versions={HOSTILE: HOSTILE},
                host={HOSTILE: HOSTILE}, target_url="http://me:secret@host:80", label=HOSTILE,
                workers=(WorkerInfo(0, HOSTILE, 0, 0),), started_at=HOSTILE, git_sha=HOSTILE,
                stopped=Stopped(5.0, HOSTILE), reasoning=HOSTILE, arrival=HOSTILE),
    )  # fmt: skip


HOSTILE_SAMPLE = _hostile()

SAMPLES: dict[str, Sample] = {
    "pass": PASS,
    "fail": FAIL,
    "inconclusive": INCONCLUSIVE,
    "invalid": INVALID,
    "no data": NO_DATA,
    "hostile": HOSTILE_SAMPLE,
}
