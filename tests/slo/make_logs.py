"""Writes the logs beside a synthetic run: GPU and server samples, once a second."""

import json
from collections.abc import Callable
from pathlib import Path

from slo.rundir import GPU, SERVER, Run, read_run

Series = Callable[[int], float]


def write_server(directory: Path, *, step_s: float = 0.0, at: int = 10, **series: Series) -> None:
    """server.jsonl; the wall clock is set by `step_s` in second `at`."""
    run = read_run(directory)
    header = {
        "type": "header",
        "schema": "1.0",
        "url": "u",
        "kind": "tailgate",
        "unavailable": None,
    }
    lines = [header | _stamp(run, 0.0)]
    for second in range(_seconds(run)):
        values = {name: of(second) for name, of in series.items()}
        lines.append(_sample(run, second, step_s if second >= at else 0.0) | values)
    _write(directory / SERVER, lines)


def write_gpu(directory: Path, *, idle_mib: float | None = None, **series: Series) -> None:
    """gpu.jsonl of one GPU, or of it and an idle one that holds so much."""
    run = read_run(directory)
    gpu = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA A10"}
    header = {"type": "header", "schema": "1.0", "host": "test", "pid": 1, "period_s": 1.0}
    lines = [header | _stamp(run, 0.0) | {"unavailable": None, "gpus": [gpu]}]
    for second in range(_seconds(run)):
        values = {name: of(second) for name, of in series.items()}
        lines.append(_sample(run, second, 0.0) | {"gpu": 0} | values)
        if idle_mib is not None:
            idle = dict.fromkeys(series, 0.0) | {"mem_used_mib": idle_mib}
            lines.append(_sample(run, second, 0.0) | {"gpu": 1} | idle)
    _write(directory / GPU, lines)


def _seconds(run: Run) -> int:
    return int(run.warmup_s + run.duration_s)


def _stamp(run: Run, second: float, step_s: float = 0.0) -> dict[str, int]:
    after = round(second * 1e9)
    wall = run.t0_wall_ns + after + round(step_s * 1e9)
    return {"t_wall_ns": wall, "t_mono_ns": run.t0_mono_ns + after}


def _sample(run: Run, second: int, step_s: float) -> dict[str, object]:
    return {"type": "sample"} | _stamp(run, second + 0.5, step_s)


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
