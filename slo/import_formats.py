"""Result files of other tools, read as requests: vllm bench serve, GuideLLM, AIPerf, Locust."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from slo.ending import UsageError
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
        UsageError: it cannot be read, is none of the known, or holds no request.
    """
    name = tool or _told(path)
    try:
        found = READERS[name](path, index)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"{path}: is no result of {name} that is known here: {what}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if not found.requests:
        raise UsageError(f"{path}: holds no request")
    return found


def _told(path: Path) -> str:
    if path.suffix == ".csv":
        return "locust"
    if path.suffix == ".jsonl":
        return "aiperf"
    try:
        document = _json(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: no JSON: {error}") from None
    keys = document.keys() if isinstance(document, dict) else ()
    for key, tool in (("request_throughput", "vllm"), ("benchmarks", "guidellm")):
        if key in keys:
            return tool
    if {"input_config", "request_latency"} & set(keys):
        return "aiperf"
    raise UsageError(f"{path}: is of no tool that is known here; name it with --from")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _vllm(path: Path, _: int | None) -> ForeignRun:
    """`vllm bench serve --save-result --save-detailed`."""
    told = _json(path)
    if "ttfts" not in told or "start_times" not in told:
        raise UsageError(
            f"{path}: holds no single requests; run vllm bench serve with --save-detailed"
        )
    columns = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    ends = told.get("latencies") or [None] * len(told["ttfts"])
    rows = zip(*(told[name] for name in columns), ends, strict=True)
    requests = []
    for start, ttft, itls, prompt, output, error, latency in rows:
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
    rate = told.get("request_rate")
    why = "when requests were due is not in the file, so that latencies count from sent"
    return ForeignRun(
        Imported("vllm bench serve", ("ttfat", *NEVER_KNOWN), False, why),
        tuple(requests),
        model=told.get("model_id"),
        asked_rate_per_s=float(rate) if isinstance(rate, int | float) else None,
        arrival="poisson" if told.get("burstiness") == 1.0 else "unknown",
    )


def _guidellm(path: Path, index: int | None) -> ForeignRun:
    """GuideLLM's JSON report; one of its benchmarks."""
    benchmarks = _json(path)["benchmarks"]
    if index is None and len(benchmarks) > 1:
        raise UsageError(f"{path}: holds {len(benchmarks)} benchmarks; name one: --index 0")
    chosen = benchmarks[index or 0]["requests"]
    requests = [
        _of_guidellm(one, kind)
        for kind in ("successful", "errored", "incomplete")
        for one in chosen.get(kind) or ()
    ]
    why = "gaps between chunks are not in the file"
    return ForeignRun(
        Imported("GuideLLM", ("itl", *NEVER_KNOWN), True, why),
        tuple(sorted(requests, key=lambda one: one.due_s)),
    )


def _of_guidellm(one: dict[str, Any], kind: str) -> Foreign:
    info = one["info"]
    times = info["timings"]
    good = kind == "successful"
    sent = times.get("request_start")
    due = times.get("targeted_start") or sent or times["resolve_start"]
    return Foreign(
        due_s=due,
        sent_s=sent,
        first_token_s=times.get("first_token_iteration") if good else None,
        first_answer_s=times.get("first_output_token_iteration") if good else None,
        last_token_s=times.get("last_token_iteration") if good else None,
        ended_s=times.get("request_end") or times.get("resolve_end"),
        prompt_tokens=one.get("prompt_tokens"),
        output_tokens=one.get("output_tokens"),
        chunks=times.get("token_iterations"),
        error=None if good else _one_line(info.get("error") or kind),
    )


def _aiperf(path: Path, _: int | None) -> ForeignRun:
    """AIPerf's profile_export.jsonl, or the JSON summary beside it."""
    lines = path
    if path.suffix != ".jsonl":
        lines = path.with_name("profile_export.jsonl")
        if not lines.exists():
            raise UsageError(f"{path}: is a summary without requests; give {lines.name}")
    requests, due_known = [], True
    for line in lines.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        due_known = due_known and one["metadata"].get("credit_issued_ns") is not None
        requests.append(_of_aiperf(one))
    why = (
        "gaps are those between chunks; "
        if due_known
        else ("when requests were due is not in the file, so that latencies count from sent; ")
    )
    why += "whether an answer was reasoning is not in the file"
    return ForeignRun(Imported("AIPerf", ("ttfat", *NEVER_KNOWN), due_known, why), tuple(requests))


def _of_aiperf(one: dict[str, Any]) -> Foreign:
    about, metrics, error = one["metadata"], one.get("metrics") or {}, one.get("error")

    def metric(name: str) -> Any:
        return (metrics.get(name) or {}).get("value")

    sent = about["request_start_ns"] / 1e9
    latency, ttft = metric("request_latency"), metric("time_to_first_token")
    gaps = metric("inter_chunk_latency") or ()
    first = sent + ttft / 1e3 if ttft is not None and not error else None
    output = metric("output_sequence_length") or metric("output_token_count")
    return Foreign(
        due_s=(about.get("credit_issued_ns") or about["request_start_ns"]) / 1e9,
        sent_s=sent,
        first_token_s=first,
        last_token_s=sent + latency / 1e3 if latency is not None and not error else None,
        ended_s=about["request_end_ns"] / 1e9,
        prompt_tokens=_whole(metric("input_sequence_length")),
        output_tokens=_whole(output),
        chunks=len(gaps) + 1 if first is not None else None,
        gaps_ms=tuple(gaps) if first is not None else (),
        error=_one_line(f"{error.get('type')}: {error.get('message')}") if error else None,
        status=_whole(error.get("code")) if error else None,
        warmup=about.get("benchmark_phase") == "warmup",
    )


def _locust(path: Path, _: int | None) -> ForeignRun:
    """Locust's PREFIX_stats_history.csv (--csv-full-history) and PREFIX_stats.csv: counts only."""
    prefix = path.name.removesuffix("_stats_history.csv").removesuffix("_stats.csv")
    history, totals = (path.with_name(f"{prefix}{end}.csv") for end in ("_stats_history", "_stats"))
    counted = list(_rows(totals))
    requests: list[Foreign] = []
    names = {row["Name"] for row in counted if row["Name"] != "Aggregated"}
    for name in sorted(names):
        seen = [row for row in _rows(history) if row["Name"] == name]
        if not seen:
            raise UsageError(f"{history}: has no history of {name}; use --csv-full-history")
        steps = [
            (
                float(row["Timestamp"]),
                int(row["Total Request Count"]),
                int(row["Total Failure Count"]),
            )
            for row in seen
        ]
        # What ended in the last second is in the totals only.
        whole = next(row for row in counted if row["Name"] == name)
        end = int(whole["Request Count"]), int(whole["Failure Count"])
        steps.append((steps[-1][0] + 1.0, *end))
        requests += _of_locust(name, [(steps[0][0] - 1.0, 0, 0), *steps])
    why = "Locust's files hold counts and rounded percentiles, and its users wait for answers"
    return ForeignRun(
        Imported("Locust", _OF_LOCUST, False, why),
        tuple(sorted(requests, key=lambda one: one.due_s)),
    )


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


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
