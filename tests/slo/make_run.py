"""Builds a small synthetic run directory: known latencies and failures, at constant spacing."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slo.histograms import write_hlog
from slo.record import Arrival, Failure, Phase, Record
from slo.rundir import (
    REQUESTS,
    TARGET,
    Counts,
    Lateness,
    Run,
    WorkerInfo,
    write_atomic,
    write_json,
    write_run,
    write_schedule,
)

INFO = {
    "model": "tiny",
    "engine": "sim",
    "mode": "dynamic",
    "dtype": "float32",
    "device": "cpu",
    "reasoning": "none",
    "flags": {"max_running": 4},
    "versions": {"tailgate": "0.1.0"},
    "gpu": None,
    "process_start_wall_ns": 1_800_000_000_000_000_000,
    "pid": 4711,
}


def shuffled(values: Sequence[float], seed: int = 1) -> list[float]:
    """Values in an order without likeness of neighbours, so that each counts as one."""
    mixed = list(values)
    random.Random(seed).shuffle(mixed)
    return mixed


def make_run(
    path: Path,
    ttft_s: Sequence[float],
    e2e_s: Sequence[float] | None = None,
    *,
    ttfat_s: Sequence[float] | None = None,
    failures: int | Mapping[int, Failure] = 0,
    scenarios: Sequence[str] = ("math",),
    late_s: float | Sequence[float] = 0.0005,
    warmup: int = 0,
    chunks: int = 5,
    rate_per_s: float = 10.0,
    target: dict[str, object] | None = None,
    **run_fields: object,
) -> Path:
    """Write a whole run directory of len(ttft_s) judged requests and return its path.

    Latencies count from due, in seconds; e2e is ttft + 0.4 s unless given. `failures` is a number
    of HTTP 500 spread evenly, or the failure by judged request. Scenarios take turns. `late_s` is
    due to sent. `warmup` requests come before the judged ones. `run_fields` replace those of Run.
    """
    path.mkdir(parents=True, exist_ok=True)
    n = len(ttft_s)
    ends = list(e2e_s) if e2e_s is not None else [ttft + 0.4 for ttft in ttft_s]
    answers = list(ttfat_s) if ttfat_s is not None else list(ttft_s)
    late = [late_s] * n if isinstance(late_s, float | int) else list(late_s)
    if isinstance(failures, int):
        every = n / failures if failures else 0
        failures = {int(i * every): Failure.HTTP_STATUS for i in range(failures)}
    arrivals = [
        _arrival(i, i / rate_per_s, scenarios[i % len(scenarios)], i < warmup)
        for i in range(warmup + n)
    ]
    records = [
        _record(
            arrival,
            None if i < 0 else failures.get(i),
            (ttft_s[i], answers[i], ends[i]) if i >= 0 else (0.1, 0.1, 0.5),
            late[i] if i >= 0 else 0.0005,
            chunks,
        )
        for i, arrival in enumerate(arrivals, -warmup)
    ]
    run = replace(_run(path, records, scenarios, rate_per_s, warmup, n), **run_fields)
    write_run(path, run)
    write_schedule(path, arrivals)
    write_records(path, records)
    write_json(path / TARGET, target or {"start": INFO, "end": INFO, "models": ["tiny"]})
    write_hlog(path)
    return path


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write requests.jsonl."""
    from pydantic import TypeAdapter

    adapter = TypeAdapter(Record)
    write_atomic(
        path / REQUESTS,
        "".join(adapter.dump_json(record).decode() + "\n" for record in records),
    )


def _arrival(seq: int, due_s: float, scenario: str, warm: bool) -> Arrival:
    phase: Phase = "warmup" if warm else "measured"
    return Arrival(seq, due_s, phase, scenario, "en", "128", f"{scenario}-{seq}", 64, seq)


def _record(
    arrival: Arrival,
    error: Failure | None,
    latencies: tuple[float, float, float],
    late_s: float,
    chunks: int,
) -> Record:
    due = arrival.due_s or 0.0
    planned = {name: getattr(arrival, name) for name in Arrival.__slots__} | {"worker": 0}
    if error is Failure.DROPPED:
        return Record(**planned, error=error, error_detail="no free greenlet")
    if error in (Failure.IN_FLIGHT_CAP, Failure.SKIPPED):
        return Record(**planned, ended_s=due, error=error, error_detail="not sent")
    if error:
        return Record(
            **planned,
            sent_s=due + late_s,
            ended_s=due + late_s + 0.05,
            status=500 if error is Failure.HTTP_STATUS else None,
            error=error,
            error_detail="HTTP 500: out of memory",
        )
    ttft, ttfat, e2e = latencies
    return Record(
        **planned,
        sent_s=due + late_s,
        first_event_s=due + ttft,
        first_token_s=due + ttft,
        first_answer_token_s=due + ttfat,
        last_token_s=due + e2e,
        ended_s=due + e2e,
        prompt_tokens=128,
        output_tokens=2 * chunks,
        tokens_from="usage",
        chunks=chunks,
        first_chunk_tokens=2,
        itl_ms=((e2e - ttft) * 1e3 / (chunks - 1),) * (chunks - 1) if chunks > 1 else (),
        finish_reason="stop",
        status=200,
        cached_tokens=0,
    )


def _run(
    path: Path,
    records: Sequence[Record],
    scenarios: Sequence[str],
    rate_per_s: float,
    warmup: int,
    n: int,
) -> Run:
    completed = sum(record.completed for record in records)
    dropped = sum(record.error is Failure.DROPPED for record in records)
    late = [r.sent_s - r.due_s for r in records if r.sent_s is not None]
    late_ms = max(late, default=0.0) * 1e3
    return Run(
        id=path.name,
        label="made by a test",
        seed=1,
        arrival="constant",
        rate_per_s=rate_per_s,
        duration_s=n / rate_per_s,
        warmup_s=warmup / rate_per_s,
        mix={name: scenarios.count(name) / len(scenarios) for name in dict.fromkeys(scenarios)},
        target_url="http://127.0.0.1:8000",
        api_path="/v1/chat/completions",
        model="tiny",
        timeout_s=60.0,
        max_in_flight=1000,
        sampling={"temperature": 0.6, "top_p": 0.95, "max_tokens": 64},
        reasoning="none",
        versions={"tailgate": "0.1.0"},
        git_sha=None,
        host={"name": "test"},
        workers=(WorkerInfo(0, "local", 0, 0, records=len(records)),),
        started_at="2027-01-15T08:00:00Z",
        t0_wall_ns=1_800_000_000_000_000_000,
        t0_mono_ns=1_000_000_000_000,
        counts=Counts(
            scheduled=len(records),
            sent=len(late),
            completed=completed,
            failed=len(records) - completed - dropped,
            dropped=dropped,
        ),
        lateness=Lateness(late_ms, late_ms, late_ms, late_ms),
        finished=True,
    )
