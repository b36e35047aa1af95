"""A run directory folded once into what a report draws."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slo.causes import causes_of
from slo.evidence import readable
from slo.gpu_log import read_gpu_log
from slo.histograms import percentile_rank
from slo.latencies import Floats, Mask, spans
from slo.measurements import ALL, Measurements, collect
from slo.record import Failure
from slo.request_table import Rows, table
from slo.rundir import GPU, Run, RunDirError, read_records, read_run
from slo.sample import Sample
from slo.summary import (
    PERCENTILES,
    FailureKind,
    GpuSecond,
    GpuView,
    LatencyLine,
    SecondsLine,
    Summary,
)
from slo.target_info import flat, info

_METRICS = ("ttft", "ttfat", "e2e", "tpot", "itl", "ttft_from_sent", "e2e_from_sent")


def summarise(directory: Path) -> Summary:
    """Fold a run; what cannot be read of a spoilt requests.jsonl is left out.

    Raises:
        RunDirError: run.json cannot be read.
    """
    run = read_run(directory)
    rows = Rows()
    measured = collect(rows.noting(readable(read_records, directory, [])), run)
    columns, judged = measured.columns, measured.judged()
    start, end = measured.window_s
    length = max(end - start, 1e-9)
    offered = columns.where("phase", "measured")
    tokens = measured.tokens_per_second()
    return Summary(
        judged=int(judged.sum()),
        completed=int((judged & columns.completed).sum()),
        failed=int((judged & columns.failed).sum()),
        offered_per_s=float(offered.sum()) / length,
        achieved_per_s=float(np.isfinite(columns.numbers["sent_s"][offered]).sum()) / length,
        output_tokens_per_s=float(tokens.mean()) if len(tokens) else 0.0,
        tokens_per_chunk=_tokens_per_chunk(measured),
        latencies=tuple(_latencies(measured)),
        seconds=tuple(_seconds(measured)),
        failures=tuple(_failures(measured)),
        gpu=_gpu(directory, run),
        target=dict(flat(info(directory))),
        causes=causes_of(directory, run, table(rows)),
    )


def _tokens_per_chunk(measured: Measurements) -> float | None:
    columns = measured.columns
    tokens, chunks = columns.numbers["output_tokens"], columns.numbers["chunks"]
    known = measured.judged() & columns.completed & np.isfinite(tokens) & (chunks > 0)
    return float(tokens[known].sum() / chunks[known].sum()) if known.any() else None


def _latencies(measured: Measurements) -> Iterator[LatencyLine]:
    names = measured.scenarios
    for scenario in (ALL, *names) if len(names) > 1 else (ALL,):
        for metric in _METRICS:
            yield _latency(scenario, metric, measured.sample(metric, scenario))


def _latency(scenario: str, metric: str, sample: Sample) -> LatencyLine:
    counts = np.diff(sample.cumulative, prepend=0)
    finite = np.isfinite(sample.at_most)
    values, weights = sample.at_most[finite], counts[finite]
    some = bool(len(values))
    return LatencyLine(
        scenario=scenario,
        metric=metric,
        n=sample.n,
        failed=int(counts[~finite].sum()),
        mean_s=float(np.average(values, weights=weights)) if some else None,
        max_s=float(values[-1]) if some else None,
        percentiles_s={p: sample.percentile(p) for p in PERCENTILES},
    )


def _seconds(measured: Measurements) -> Iterator[SecondsLine]:
    """By due second, warm-up included."""
    columns = measured.columns
    if not len(columns):
        return
    numbers = columns.numbers
    second = np.maximum(numbers["due_s"], 0).astype(np.int64)
    count = int(second.max()) + 1
    offered, completed, failed = (
        np.bincount(second[mask], minlength=count)
        for mask in (np.ones(len(columns), bool), columns.completed, columns.failed)
    )
    tokens = np.bincount(second, np.nan_to_num(numbers["output_tokens"]), minlength=count)
    ttft, e2e = (_by_second(spans(columns, name), second, count) for name in ("ttft", "e2e"))
    open_at_end = _open_at_end(columns.numbers, count)
    for at in range(count):
        yield SecondsLine(
            second=at,
            offered=int(offered[at]),
            completed=int(completed[at]),
            failed=int(failed[at]),
            ttft_p50_s=_rank(ttft[at], 50),
            ttft_p95_s=_rank(ttft[at], 95),
            e2e_p50_s=_rank(e2e[at], 50),
            e2e_p95_s=_rank(e2e[at], 95),
            output_tokens=int(tokens[at]),
            in_flight=int(open_at_end[at]),
        )


def _by_second(values: Floats, second: NDArray[np.int64], count: int) -> list[Floats]:
    """The finite values of each second, in ascending order."""
    finite: Mask = np.isfinite(values)
    values, second = values[finite], second[finite]
    order = np.lexsort((values, second))
    edges = np.searchsorted(second[order], np.arange(1, count))
    return np.split(values[order], edges)


def _rank(ordered: Floats, percentile: float) -> float | None:
    if not len(ordered):
        return None
    return float(ordered[percentile_rank(len(ordered), percentile) - 1])


def _open_at_end(numbers: dict[str, Floats], count: int) -> NDArray[np.int64]:
    """Requests sent and not ended at the end of each second."""
    sent, ended = numbers["sent_s"], numbers["ended_s"]
    ended = np.sort(ended[np.isfinite(sent) & np.isfinite(ended)])
    sent = np.sort(sent[np.isfinite(sent)])
    ends = np.arange(1, count + 1)
    return np.searchsorted(sent, ends) - np.searchsorted(ended, ends, side="right")


def _failures(measured: Measurements) -> Iterator[FailureKind]:
    """Kinds of failure among the judged requests, the most frequent first."""
    columns, judged = measured.columns, measured.judged()
    total = int(judged.sum())
    counts = {
        kind.value: int((judged & columns.where("error", kind.value)).sum()) for kind in Failure
    }
    for kind, count in sorted(counts.items(), key=lambda item: -item[1]):
        if count:
            seq, detail = measured.examples[kind]
            yield FailureKind(kind, count, count / total, seq, detail)


def _gpu(directory: Path, run: Run) -> GpuView:
    try:
        log = read_gpu_log(directory / GPU, t0_mono_ns=run.t0_mono_ns, t0_wall_ns=run.t0_wall_ns)
    except RunDirError as error:
        return GpuView(not_measured=str(error))
    return GpuView(
        not_measured=log.unavailable,
        names=tuple(gpu.name or f"GPU {gpu.index}" for gpu in log.gpus),
        samples=tuple(
            GpuSecond(
                at_s=sample.at_s,
                gpu=sample.gpu,
                util_pct=sample.util_gpu_pct,
                mem_used_mib=sample.mem_used_mib,
                power_w=sample.power_w,
                temperature_c=sample.temperature_c,
                sm_clock_mhz=sample.sm_clock_mhz,
            )
            for sample in log.samples
        ),
    )
