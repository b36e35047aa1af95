"""The target's own /metrics beside a run: read on a beat, kept as JSON lines in one dialect.

Three servers say the same things under other names; what is kept bears ours. Only the lines that
are wanted are parsed, because a server may offer thousands.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from prometheus_client.parser import text_string_to_metric_families

from slo import rundir
from slo.server_log import SCHEMA
from slo.target_probe import MetricsClient, TargetError, metrics_client

PERIOD_S = 1.0
LAST_S = 10.0

Combine = Callable[[list[float]], float]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Quantity:
    """One thing that servers count: its names, and how the values of several labels become one."""

    name: str
    combine: Combine
    names: tuple[str, ...]
    scale: float = 1.0


MIB = 1.0 / (1024 * 1024)

# vLLM: vllm/v1/metrics/loggers.py and perf.py; SGLang: its metrics collector; ours: target/.
QUANTITIES = (
    Quantity("running", sum, ("vllm:num_requests_running", "sglang:num_running_reqs",
             "tailgate_requests_running", "tailgate_running")),
    Quantity("waiting", sum, ("vllm:num_requests_waiting", "sglang:num_queue_reqs",
             "tailgate_requests_waiting", "tailgate_waiting")),
    Quantity("kv_usage", max, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
             "sglang:token_usage", "tailgate_kv_cache_usage_ratio")),
    Quantity("preemptions", sum, ("vllm:num_preemptions_total", "sglang:num_retracted_reqs",
             "tailgate_preemptions_total")),
    Quantity("prompt_tokens", sum, ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total",
             "tailgate_prompt_tokens_total")),
    Quantity("output_tokens", sum, ("vllm:generation_tokens_total",
             "sglang:generation_tokens_total", "tailgate_output_tokens_total")),
    # Of one GPU: over several engines the mean.
    Quantity("flops", _mean, ("vllm:estimated_flops_per_gpu_total",
             "sglang:estimated_flops_per_gpu_total")),
    Quantity("read_bytes", _mean, ("vllm:estimated_read_bytes_per_gpu_total",
             "sglang:estimated_read_bytes_per_gpu_total")),
    Quantity("write_bytes", _mean, ("vllm:estimated_write_bytes_per_gpu_total",
             "sglang:estimated_write_bytes_per_gpu_total")),
    Quantity("allocated_mib", sum, ("tailgate_gpu_memory_allocated_bytes",), MIB),
    Quantity("reserved_mib", sum, ("tailgate_gpu_memory_reserved_bytes",), MIB),
    Quantity("cpu_s", sum, ("process_cpu_seconds_total",)),
)  # fmt: skip
_BY_NAME = {name: quantity for quantity in QUANTITIES for name in quantity.names}
_KINDS = ("vllm", "sglang", "tailgate")


def read_metrics(text: str) -> dict[str, float]:
    """What a server's /metrics says of our quantities; those it does not offer are left out.

    Raises:
        ValueError: a wanted line is no Prometheus text.
    """
    wanted = (line for line in text.splitlines() if _name(line) in _BY_NAME)
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(float(sample.value))
    values: dict[str, float] = {}
    for quantity in QUANTITIES:
        name = next((name for name in quantity.names if name in found), None)
        if name is not None:
            value = quantity.combine(found[name]) * quantity.scale
            if value == value:  # NaN: the server does not know it yet
                values[quantity.name] = round(value, 6)
    return values


def kind_of(text: str) -> str | None:
    """Whose /metrics this is, by the prefixes of its names."""
    names = {_name(line).partition(":")[0].partition("_")[0] for line in text.splitlines()}
    return next((kind for kind in _KINDS if kind in names), None)


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


@contextmanager
def beside(
    url: str, directory: Path, key: str | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Sample the target's /metrics into server.jsonl, in a thread, while the block runs.

    A run without them is still a run: what goes wrong stands in the file.
    """
    stop = threading.Event()

    def sampling() -> None:
        try:
            with (directory / rundir.SERVER).open("w", encoding="utf-8") as file:
                sample(url, file, stop.wait, key=key)
        except OSError as error:
            say(f"server metrics are not kept: {error.strerror}")

    thread = threading.Thread(target=sampling, name="server-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LAST_S)


def sample(
    url: str,
    file: IO[str],
    wait: Callable[[float], bool],
    *,
    key: str | None = None,
    period_s: float = PERIOD_S,
) -> None:
    """Write a header, then a sample on each beat until `wait` says to stop; one more at the end.

    A target that does not offer our quantities at the start is not asked again.
    """
    with metrics_client(url, key) as client:
        first, text, why = _ask(client)
        if not why and text is not None and not first:
            why = "it offers none of the metrics that are read here"
        about = {"url": f"{url}/metrics", "period_s": period_s, "kind": kind_of(text or "")}
        _write(file, {"type": "header", "schema": SCHEMA, **about, "unavailable": why, **_now()})
        if why:
            return
        due_s, stopping = time.monotonic(), False
        while not stopping:
            due_s += period_s * max(1, -(-(time.monotonic() - due_s) // period_s))
            stopping = wait(max(0.0, due_s - time.monotonic()))
            began_ns, began_wall_ns = time.monotonic_ns(), time.time_ns()
            values, _, why = _ask(client)
            half_ns = (time.monotonic_ns() - began_ns) // 2
            stamp = {"t_wall_ns": began_wall_ns + half_ns, "t_mono_ns": began_ns + half_ns}
            kind = {"type": "event", "error": why} if why else {"type": "sample"}
            _write(file, {**kind, **stamp, **values})


def _ask(client: MetricsClient) -> tuple[dict[str, float], str | None, str | None]:
    """Values and the text they came from, or why there are none."""
    try:
        text = client.text()
        return read_metrics(text), text, None
    except TargetError as error:
        return {}, None, str(error)
    except ValueError as error:
        return {}, None, f"no Prometheus text: {error}"


def _write(file: IO[str], record: dict[str, object]) -> None:
    file.write(json.dumps(record, allow_nan=False) + "\n")
    file.flush()


def _now() -> dict[str, int]:
    return {"t_wall_ns": time.time_ns(), "t_mono_ns": time.monotonic_ns()}
