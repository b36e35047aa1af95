"""Run directories with GPU and server evidence of known numbers."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slo.histograms import write_hlog
from slo.record import Record
from slo.rundir import GPU, SERVER, read_records, read_run
from tests.slo.make_run import INFO, make_run, write_records

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
T0_NS = 1_000_000_000_000
H200 = {"index": 0, "name": "NVIDIA H200", "peak_bandwidth_gb_s": 4814.3, "gpm": True}
SERVED = {"start": {**INFO, "model": MODEL, "dtype": "bfloat16", "flags": {}}}

Values = Mapping[str, Any] | Callable[[float], Mapping[str, Any]]


def evident_run(
    path: Path,
    *,
    seconds: int = 30,
    rate_per_s: float = 10.0,
    ttft_s: float = 0.05,
    e2e_s: float = 0.45,
    gpu: Values | None = None,
    server: Values | None = None,
    change: Callable[[Record], Record] = lambda record: record,
    about: Mapping[str, Any] = H200,
) -> Path:
    """A run of constant latencies, with a GPU sample each 0.5 s and a server sample each second."""
    n = int(seconds * rate_per_s)
    make_run(path, [ttft_s] * n, [e2e_s] * n, rate_per_s=rate_per_s, target=SERVED)
    write_records(path, map(change, list(read_records(path))))
    write_hlog(path)
    if gpu is not None:
        write_gpu(path, gpu, seconds, about)
    if server is not None:
        lines = [{"type": "header", "schema": "1.0", "kind": "tailgate", "unavailable": None}]
        lines += [
            {"type": "sample", **stamp(at), **values(server, at)} for at in range(seconds + 1)
        ]
        write_lines(path / SERVER, lines)
    assert read_run(path).t0_mono_ns == T0_NS
    return path


def write_gpu(path: Path, gpu: Values, seconds: float, about: Mapping[str, Any] = H200) -> None:
    """gpu.jsonl of one GPU."""
    header = {"type": "header", "schema": "1.0", "host": "test", "pid": 1, "period_s": 0.5}
    header |= {**stamp(0), "unavailable": None, "gpus": [dict(about)]}
    beats = (beat / 2 for beat in range(int(seconds * 2)))
    samples = ({"type": "sample", "gpu": 0, **stamp(at), **values(gpu, at)} for at in beats)
    write_lines(path / GPU, [header, *samples])


def values(given: Values, at_s: float) -> dict[str, Any]:
    return dict(given(at_s) if callable(given) else given)


def stamp(at_s: float) -> dict[str, int]:
    return {"t_mono_ns": T0_NS + int(at_s * 1e9), "t_wall_ns": T0_NS + int(at_s * 1e9)}


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def told(**timings_ms: float) -> Callable[[Record], Record]:
    """Gives each record timings of the server's own."""
    return lambda record: replace(record, timings={f"{k}_ms": v for k, v in timings_ms.items()})
