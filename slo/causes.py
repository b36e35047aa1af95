"""A run directory's evidence of why it was as fast as it was: from its files to a diagnosis."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slo import join
from slo.diagnosis import Diagnosis, diagnose
from slo.evidence import readable
from slo.gpu_log import GpuInfo, GpuLog, GpuSample, read_gpu_log
from slo.machine import Found, machine_of
from slo.request_table import Requests, Rows, table
from slo.rundir import (
    GPU,
    SERVER,
    Run,
    RunDirError,
    read_records,
    read_run,
)
from slo.server_log import ServerLog, read_server_log
from slo.signals import GpuSignals, Signals, gpu_of, load_of, rooflines, server_of
from slo.target_info import info
from slo.thresholds import LIMITS, Limits

# GPU-util looks back over up to a second, so the first of a window is not its own.
EDGE_S = 1.0


@dataclass(frozen=True, slots=True)
class Causes:
    """What the evidence says, and the joined numbers that a report draws."""

    diagnosis: Diagnosis
    signals: Signals
    stages: tuple[join.Stage, ...]
    lengths: tuple[join.LengthLine, ...]
    correlations: tuple[join.Correlation, ...]
    contrasts: tuple[join.Contrast, ...]
    axis: join.Axis
    gpu_absent: str | None
    server_absent: str | None


def causes(directory: Path, limits: Limits = LIMITS) -> Causes:
    """Read a run and diagnose it; what cannot be read of its logs is left out and said.

    Raises:
        RunDirError: run.json cannot be read.
    """
    run, rows = read_run(directory), Rows()
    for _ in rows.noting(readable(read_records, directory, [])):
        pass
    return causes_of(directory, run, table(rows), limits)


def causes_of(directory: Path, run: Run, requests: Requests, limits: Limits = LIMITS) -> Causes:
    """The same over records that were read already."""
    window = run.window_s
    log, server_log = _gpu_log(directory, run), _server_log(directory, run)
    gpu, used = _busiest(log, window)
    server = server_of(server_log.samples, window)
    load = load_of(requests, window)
    found = machine_of(run.model, info(directory), used)
    first = requests.numbers["first_token_s"]
    inside = (first >= window[0]) & (first < window[1])
    mbu, mfu = None, None
    if found.machine is not None:
        cached = np.nan_to_num(requests.numbers["cached_tokens"])
        prompts = (requests.numbers["prompt_tokens"] - cached)[inside]
        mbu, mfu = rooflines(load, server, found.machine, prompts, window[1] - window[0])
    seconds = window[1] - window[0]
    signals = Signals(seconds, load, gpu, log.unavailable, server, mbu, mfu, found.why)
    samples = [one for one in log.samples if gpu is not None and one.gpu == gpu.gpu]
    axis = join.axis_of(requests, samples, server_log.samples, _length(requests, window))
    return Causes(
        diagnosis=diagnose(signals, limits),
        signals=signals,
        stages=join.stages(requests),
        lengths=join.by_length(requests),
        correlations=join.correlations(axis, requests, window),
        contrasts=join.contrasts(axis, requests),
        axis=axis,
        gpu_absent=log.unavailable,
        server_absent=server_log.unavailable,
    )


def found_for(directory: Path, run: Run) -> Found:
    """The roofline of all GPUs that the sidecar saw, whether they were used or not."""
    return machine_of(run.model, info(directory), _gpu_log(directory, run).gpus)


def _length(requests: Requests, window: tuple[float, float]) -> int:
    ended = requests.numbers["ended_s"]
    last = float(np.nanmax(ended)) if np.isfinite(ended).any() else 0.0
    return int(max(last, window[1])) + 1


def _gpu_log(directory: Path, run: Run) -> GpuLog:
    try:
        return read_gpu_log(directory / GPU, t0_mono_ns=run.t0_mono_ns, t0_wall_ns=run.t0_wall_ns)
    except RunDirError as error:
        return GpuLog(str(error))


def _server_log(directory: Path, run: Run) -> ServerLog:
    try:
        return read_server_log(directory / SERVER, t0_mono_ns=run.t0_mono_ns)
    except RunDirError as error:
        return ServerLog(str(error))


def _busiest(
    log: GpuLog, window: tuple[float, float]
) -> tuple[GpuSignals | None, tuple[GpuInfo, ...]]:
    """The GPU that was used most, and all that were used: their roofline is the run's."""
    if log.unavailable is not None:
        return None, ()
    start = min(window[0] + EDGE_S, window[1])
    about = {one.index: one for one in log.gpus}
    found = {
        gpu: gpu_of(samples, (start, window[1]), about.get(gpu)) for gpu, samples in _by_gpu(log)
    }
    known = {gpu: one for gpu, one in found.items() if one is not None}
    if not known:
        return None, ()

    def rank(one: GpuSignals) -> tuple[float, float]:
        return (one.util_pct or one.sm_pct or 0.0, one.power_w or 0.0)

    top = max(known.values(), key=rank)
    least = 0.2 * rank(top)[0]
    used = {gpu for gpu, one in known.items() if one is top or rank(one)[0] > max(least, 5.0)}
    return top, tuple(gpu for gpu in log.gpus if gpu.index in used)


def _by_gpu(log: GpuLog) -> Iterator[tuple[int, list[GpuSample]]]:
    for index in sorted({sample.gpu for sample in log.samples}):
        yield index, [sample for sample in log.samples if sample.gpu == index]
