"""All that a run directory holds for its judge; a file that cannot be read is evidence too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slo.beside import NO_BASELINE, Baseline, Beside, read_beside
from slo.histograms import Counts, read_hlog
from slo.measurements import Measurements, collect
from slo.record import Arrival
from slo.rundir import (
    GPU,
    LATENCY,
    SERVER,
    TARGET,
    Run,
    RunDirError,
    read_json,
    read_lines,
    read_records,
    read_run,
    read_schedule,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Schedule:
    """schedule.csv as arrays; `due_s` is nan for later turns of a session."""

    seq: NDArray[np.float64]
    due_s: NDArray[np.float64]
    measured: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run directory, read. `unreadable` says of each spoilt file where and what; the rest of it
    is what could be read before that place.
    """

    run: Run
    measured: Measurements
    schedule: Schedule
    intervals: dict[tuple[str, int], Counts]
    target: dict[str, Any] | None  # None: target.json is missing
    beside: Beside
    clock_s: NDArray[np.float64]  # wall minus monotonic clock of this host, in time
    unreadable: tuple[str, ...]


def read_evidence(directory: Path, baseline: Baseline = NO_BASELINE) -> Evidence:
    """Read a run directory.

    Raises:
        RunDirError: run.json cannot be read.
    """
    run = read_run(directory)
    unreadable: list[str] = []
    schedule = _schedule(readable(read_schedule, directory, unreadable))
    measured = collect(readable(read_records, directory, unreadable), run)
    intervals: dict[tuple[str, int], Counts] = {}
    target = None
    try:
        intervals = read_hlog(directory / LATENCY)
    except RunDirError as error:
        unreadable.append(str(error))
    if (directory / TARGET).exists():
        try:
            found = read_json(directory / TARGET)
            target = found if isinstance(found, dict) else {}
        except RunDirError as error:
            unreadable.append(str(error))
    beside = read_beside(directory, run, unreadable, baseline)
    return Evidence(
        run=run,
        measured=measured,
        schedule=schedule,
        intervals=intervals,
        target=target,
        beside=beside,
        clock_s=_clock(directory, local_gpu=not beside.gpu.clocks),
        unreadable=tuple(unreadable),
    )


def _clock(directory: Path, *, local_gpu: bool) -> NDArray[np.float64]:
    """What the samplers on this host saw of its two clocks."""
    best: list[float] = []
    for name in (SERVER, GPU) if local_gpu else (SERVER,):
        try:
            lines = list(read_lines(directory / name))
        except RunDirError:  # what reads the log itself names it
            continue
        both = [
            (line["t_wall_ns"] - line["t_mono_ns"]) / 1e9
            for line in lines
            if isinstance(line, dict)
            and isinstance(line.get("t_wall_ns"), int)
            and isinstance(line.get("t_mono_ns"), int)
        ]
        best = max(best, both, key=len)
    return np.array(best)


def readable(
    read: Callable[[Path], Iterator[T]], directory: Path, unreadable: list[str]
) -> Iterator[T]:
    """What can be read before the first mistake, which is noted."""
    try:
        yield from read(directory)
    except RunDirError as error:
        unreadable.append(str(error))


def _schedule(arrivals: Iterator[Arrival]) -> Schedule:
    cells = (
        cell
        for arrival in arrivals
        for cell in (
            arrival.seq,
            np.nan if arrival.due_s is None else arrival.due_s,
            arrival.phase == "measured",
        )
    )
    table = np.fromiter(cells, np.float64).reshape(-1, 3)
    return Schedule(table[:, 0], table[:, 1], table[:, 2] == 1)
