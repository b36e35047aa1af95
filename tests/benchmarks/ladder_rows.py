"""From a run directory to one row of the ladder's table."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from slo.histograms import percentile_rank
from slo.record import Record
from slo.rundir import read_records, read_run
from target.physics import GPUS, Setup, read_bytes

GPU_KEYS = ("util_gpu_pct", "util_mem_pct", "dram_active_pct", "tensor_active_pct",
            "sm_active_pct", "power_w", "mem_used_mib")  # fmt: skip


def percentile(values: Sequence[float], p: float) -> float | None:
    """By rank ceil(p/100 * n), as everywhere here."""
    return sorted(values)[percentile_rank(len(values), p) - 1] if values else None


def row_of(directory: Path, rate: float, gpu: Path) -> dict[str, Any]:
    """Latency, throughput and GPU of the judged window of one run."""
    run = read_run(directory)
    records = [record for record in read_records(directory) if record.phase == "measured"]
    good = [r for r in records if r.error is None and r.first_token_s is not None]
    start, end = run.warmup_s, run.warmup_s + run.duration_s
    # Tokens in the window, by when they came: steady, whatever was due or drained.
    tokens = sum(tokens_within(record, start, end) for record in every(directory))
    ended = sum(start <= (r.last_token_s or -1) < end and r.error is None for r in every(directory))
    row: dict[str, Any] = {
        "offered_per_s": rate,
        "due": len(records),
        "failed": len(records) - len(good),
        "failures": count(str(r.error) for r in records if r.error is not None),
        "ended_per_s": round(ended / run.duration_s, 3),
        "tokens_per_s": round(tokens / run.duration_s, 1),
        "prompt_tokens": mean(r.prompt_tokens for r in good),
        "output_tokens": mean(r.output_tokens for r in good),
    }
    for name, values in (
        ("ttft", [r.first_token_s - r.due_s for r in good if r.first_token_s]),
        ("e2e", [r.last_token_s - r.due_s for r in good if r.last_token_s]),
        ("tpot", [(r.last_token_s - r.first_token_s) / (r.output_tokens - 1) for r in good
                  if r.last_token_s and r.first_token_s and (r.output_tokens or 0) > 1]),
    ):  # fmt: skip
        row[f"{name}_p50_s"], row[f"{name}_p95_s"] = percentile(values, 50), percentile(values, 95)
    thirds = [r.first_token_s - r.due_s for r in good if r.first_token_s]
    cut = max(1, len(thirds) // 3)
    row["ttft_first_third_s"] = mean(thirds[:cut])
    row["ttft_last_third_s"] = mean(thirds[-cut:])
    row |= gpu_of(gpu, run.t0_mono_ns, start, end)
    busy = sum(overlap(r, start, end) for r in every(directory)) / run.duration_s
    row["mean_running"] = round(busy, 2)
    row |= derived(row, busy)
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()}


def every(directory: Path) -> Iterable[Record]:
    """All records that brought text, of the warm-up too."""
    return (r for r in read_records(directory) if r.first_token_s is not None)


def overlap(record: Record, start: float, end: float) -> float:
    """Seconds of a record's decoding within the window."""
    first, last = record.first_token_s or 0.0, record.last_token_s or record.first_token_s or 0.0
    return max(0.0, min(end, last) - max(start, first))


def tokens_within(record: Record, start: float, end: float) -> float:
    """Its tokens within the window, as if they came evenly."""
    first, last = record.first_token_s or 0.0, record.last_token_s or record.first_token_s or 0.0
    tokens = record.output_tokens or 0
    if last <= first:
        return float(tokens if start <= first < end else 0)
    return tokens * overlap(record, start, end) / (last - first)


def gpu_of(path: Path, t0_ns: int, start: float, end: float) -> dict[str, Any]:
    """Means of the sidecar's samples in the window; nothing where there is no GPU."""
    samples = []
    if path.exists():
        for line in path.read_text().splitlines():
            told = json.loads(line)
            if told.get("type") == "sample" and start <= (told["t_mono_ns"] - t0_ns) / 1e9 < end:
                samples.append(told)
    found = {}
    for key in GPU_KEYS:
        value = mean(sample.get(key) for sample in samples)
        if value is not None:
            found[key] = value
    return {**found, "gpu_samples": len(samples)}


def derived(row: dict[str, Any], running: float) -> dict[str, Any]:
    """MBU by the roofline of this shape, and energy a token."""
    found: dict[str, Any] = {}
    setup = Setup(GPUS["h200"])
    tpot, context = row["tpot_p50_s"], (row["prompt_tokens"] or 0) + (row["output_tokens"] or 0) / 2
    if tpot and running:
        moved = read_bytes(setup) + max(1.0, running) * (context + 1) * setup.kv_token_bytes
        share = min(1.0, running)  # of the time in which anything is decoded
        found["mbu_pct"] = 100 * share * moved / tpot / setup.gpu.bandwidth
    if row.get("power_w") and row["tokens_per_s"]:
        found["joule_per_token"] = row["power_w"] / row["tokens_per_s"]
    return found


def stable(row: dict[str, Any]) -> bool:
    """No failures, all that was due came out, and the queue did not grow over the run."""
    first, last = row["ttft_first_third_s"], row["ttft_last_third_s"]
    if row["failed"] or first is None or last is None:
        return False
    return bool(last < 2 * first + 0.25 * (row["e2e_p50_s"] or 0))


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there; None of none."""
    found = [float(value) for value in values if value is not None]
    return statistics.fmean(found) if found else None


def count(names: Iterable[str]) -> dict[str, int]:
    """How often each came."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
