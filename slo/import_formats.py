"""Result files of other tools, read as requests: vllm bench serve, GuideLLM, AIPerf, Locust."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from slo.ending import UsageError
from slo.import_shapes import (
    Aiperf,
    AiperfMetrics,
    Guidellm,
    GuidellmRequest,
    LocustSecond,
    LocustTotal,
    Vllm,
    csv_rows,
    json_file,
    json_lines,
    shaped,
)
from slo.objectives import LATENCIES
from slo.rundir import Imported

NEVER_KNOWN = ("session", "accuracy")
_OF_LOCUST = (*LATENCIES, "goodput", "output_tokens_per_s", "achieved_rate", "accuracy")


@dataclass(frozen=True, slots=True)
class Foreign:
    """One request of another tool; times are seconds on its own clock. None: not in its file."""

    due_s: float
    sent_s: float | None = None
    first_token_s: float | None = None
    first_answer_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    chunks: int | None = None
    gaps_ms: tuple[float, ...] = ()
    error: str | None = None
    status: int | None = None
    scenario: str = "all requests"
    warmup: bool = False


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """A whole file of another tool."""

    imported: Imported
    requests: tuple[Foreign, ...]
    model: str | None = None
    target_url: str = ""
    asked_rate_per_s: float | None = None
    arrival: str = "unknown"


Reader = Callable[[Path, int | None], ForeignRun]


def read(path: Path, tool: str | None, index: int | None) -> ForeignRun:
    """Read a result file; without a tool's name it is told by what is in it.

    Raises:
        UsageError: it cannot be read, is none of the known, or holds no request; names the line
            and the key that are wrong, and what is allowed.
    """
    found = READERS[tool or _told(path)](path, index)
    if not found.requests:
        raise UsageError(f"{path}: holds no request")
    return found


def _told(path: Path) -> str:
    if path.suffix == ".csv":
        return "locust"
    if path.suffix == ".jsonl":
        return "aiperf"
    document = json_file(path)
    keys = document.keys() if isinstance(document, dict) else ()
    for key, tool in (("request_throughput", "vllm"), ("benchmarks", "guidellm")):
        if key in keys:
            return tool
    if {"input_config", "request_latency"} & set(keys):
        return "aiperf"
    raise UsageError(f"{path}: is of no tool that is known here; name it with --from")


def _vllm(path: Path, _: int | None) -> ForeignRun:
    """`vllm bench serve --save-result --save-detailed`."""
    document = json_file(path)
    if isinstance(document, dict) and not {"ttfts", "start_times"} <= document.keys():
        raise UsageError(
            f"{path}: holds no single requests; run vllm bench serve with --save-detailed"
        )
    told = shaped(document, Vllm, str(path))
    columns = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    for name in (*columns, *(("latencies",) if told.latencies else ())):
        found, wanted = len(getattr(told, name)), len(told.start_times)
        if found != wanted:
            raise UsageError(f"{path}: {name}: has {found} entries; allowed: {wanted}, one a start")
    durations = chain(told.ttfts, told.latencies or (), *told.itls)
    lowest = min(durations, default=0.0)
    if lowest < 0:
        raise UsageError(f"{path}: {lowest:g} is no duration; allowed: 0 or more")
    ends = told.latencies or (None,) * len(told.start_times)
    requests = []
    for start, ttft, itls, prompt, output, error, latency in zip(
        *(getattr(told, name) for name in columns), ends, strict=True
    ):
        first = start + ttft
        last = start + latency if latency is not None else first + sum(itls)
        good = not error
        requests.append(
            Foreign(
                due_s=start,
                sent_s=start,
                first_token_s=first if good else None,
                last_token_s=last if good else None,
                ended_s=last,
                prompt_tokens=prompt,
                output_tokens=output if good else None,
                chunks=len(itls) + 1 if good else None,
                gaps_ms=tuple(gap * 1e3 for gap in itls) if good else (),
                error=_one_line(error) if error else None,
            )
        )
    rate = told.request_rate
    why = "when requests were due is not in the file, so that latencies count from sent"
    return ForeignRun(
        Imported("vllm bench serve", ("ttfat", *NEVER_KNOWN), False, why),
        tuple(requests),
        model=told.model_id,
        asked_rate_per_s=rate if isinstance(rate, float) else None,
        arrival="poisson" if told.burstiness == 1.0 else "unknown",
    )


def _guidellm(path: Path, index: int | None) -> ForeignRun:
    """GuideLLM's JSON report; one of its benchmarks."""
    benchmarks = shaped(json_file(path), Guidellm, str(path)).benchmarks
    if index is None and len(benchmarks) > 1:
        raise UsageError(f"{path}: holds {len(benchmarks)} benchmarks; name one: --index 0")
    if not 0 <= (index or 0) < len(benchmarks):
        raise UsageError(
            f"{path}: holds {len(benchmarks)} benchmarks, none of --index {index or 0}"
        )
    chosen = benchmarks[index or 0].requests
    requests = [
        _of_guidellm(one, kind, f"{path}: requests.{kind}.{place}")
        for kind in ("successful", "errored", "incomplete")
        for place, one in enumerate(getattr(chosen, kind) or ())
    ]
    why = "gaps between chunks are not in the file"
    return ForeignRun(
        Imported("GuideLLM", ("itl", *NEVER_KNOWN), True, why),
        tuple(sorted(requests, key=lambda one: one.due_s)),
    )


def _of_guidellm(one: GuidellmRequest, kind: str, where: str) -> Foreign:
    times = one.info.timings
    good = kind == "successful"
    due = times.targeted_start or times.request_start or times.resolve_start
    if due is None:
        starts = "targeted_start, request_start, resolve_start"
        raise UsageError(f"{where}: has no start; allowed: one of {starts} in info.timings")
    return Foreign(
        due_s=due,
        sent_s=times.request_start,
        first_token_s=times.first_token_iteration if good else None,
        first_answer_s=times.first_output_token_iteration if good else None,
        last_token_s=times.last_token_iteration if good else None,
        ended_s=times.request_end or times.resolve_end,
        prompt_tokens=one.prompt_tokens,
        output_tokens=one.output_tokens,
        chunks=times.token_iterations,
        error=None if good else _one_line(one.info.error or kind),
    )


def _aiperf(path: Path, _: int | None) -> ForeignRun:
    """AIPerf's profile_export.jsonl, or the JSON summary beside it."""
    lines = path
    if path.suffix != ".jsonl":
        lines = path.with_name("profile_export.jsonl")
        if not lines.exists():
            raise UsageError(f"{path}: is a summary without requests; give {lines.name}")
    told = list(json_lines(lines, Aiperf))
    due_known = all(one.metadata.credit_issued_ns is not None for one in told)
    why = (
        "gaps are those between chunks; "
        if due_known
        else ("when requests were due is not in the file, so that latencies count from sent; ")
    )
    why += "whether an answer was reasoning is not in the file"
    requests = tuple(map(_of_aiperf, told))
    return ForeignRun(Imported("AIPerf", ("ttfat", *NEVER_KNOWN), due_known, why), requests)


def _of_aiperf(one: Aiperf) -> Foreign:
    about, metrics, error = one.metadata, one.metrics or AiperfMetrics(), one.error
    sent = about.request_start_ns / 1e9
    latency, ttft = metrics.number("request_latency"), metrics.number("time_to_first_token")
    gaps = metrics.numbers("inter_chunk_latency")
    first = sent + ttft / 1e3 if ttft is not None and not error else None
    output = metrics.number("output_sequence_length") or metrics.number("output_token_count")
    return Foreign(
        due_s=(about.credit_issued_ns or about.request_start_ns) / 1e9,
        sent_s=sent,
        first_token_s=first,
        last_token_s=sent + latency / 1e3 if latency is not None and not error else None,
        ended_s=about.request_end_ns / 1e9,
        prompt_tokens=_whole(metrics.number("input_sequence_length")),
        output_tokens=_whole(output),
        chunks=len(gaps) + 1 if first is not None else None,
        gaps_ms=gaps if first is not None else (),
        error=_one_line(f"{error.type}: {error.message}") if error else None,
        status=error.code if error else None,
        warmup=about.benchmark_phase == "warmup",
    )


def _locust(path: Path, _: int | None) -> ForeignRun:
    """Locust's PREFIX_stats_history.csv (--csv-full-history) and PREFIX_stats.csv: counts only."""
    ends = ("_stats_history.csv", "_stats.csv")
    end = next((end for end in ends if path.name.endswith(end)), None)
    if end is None:
        allowed = " or ".join(f"PREFIX{end}" for end in ends)
        raise UsageError(f"{path}: is no file of locust --csv; allowed: {allowed}")
    history, totals = (path.with_name(path.name.removesuffix(end) + one) for one in ends)
    counted = [row for row in csv_rows(totals, LocustTotal) if row.name != "Aggregated"]
    seconds = list(csv_rows(history, LocustSecond)) if counted else []
    requests: list[Foreign] = []
    for name in sorted({row.name for row in counted}):
        steps = [(row.at_s, row.count, row.failed) for row in seconds if row.name == name]
        if not steps:
            raise UsageError(f"{history}: has no history of {name}; use --csv-full-history")
        # What ended in the last second is in the totals only.
        whole = next(row for row in counted if row.name == name)
        steps.append((steps[-1][0] + 1.0, whole.count, whole.failed))
        requests += _of_locust(name, [(steps[0][0] - 1.0, 0, 0), *steps])
    why = "Locust's files hold counts and rounded percentiles, and its users wait for answers"
    return ForeignRun(
        Imported("Locust", _OF_LOCUST, False, why),
        tuple(sorted(requests, key=lambda one: one.due_s)),
    )


def _of_locust(name: str, steps: Iterable[tuple[float, int, int]]) -> Iterator[Foreign]:
    """The requests that ended in each second, evenly over it; a success is told from a failure."""
    for (_, before, before_failed), (at, count, failed) in pairwise(steps):
        new, bad = count - before, failed - before_failed
        for i in range(new):
            due = at - 1.0 + i / new
            error = "told by Locust as a failure" if i < bad else None
            yield Foreign(due, due, ended_s=due, error=error, scenario=name.strip("/") or name)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _one_line(text: str) -> str:
    return " ".join(str(text).split())[-200:]


READERS: dict[str, Reader] = {
    "vllm": _vllm,
    "guidellm": _guidellm,
    "aiperf": _aiperf,
    "locust": _locust,
}
