"""All that a run directory holds for its judge; a file that cannot be read is evidence too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slo.histograms import Counts, read_hlog
from slo.measurements import Measurements, collect
from slo.record import Arrival
from slo.rundir import (
    LATENCY,
    TARGET,
    Run,
    RunDirError,
    read_json,
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
    unreadable: tuple[str, ...]


def read_evidence(directory: Path) -> Evidence:
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
    return Evidence(run, measured, schedule, intervals, target, tuple(unreadable))


def readable(
    read: Callable[[Path], Iterator[T]], directory: Path, unreadable: list[str]
) -> Iterator[T]:
    """What can be read before the first mistake, which is noted."""
    try:
        yield from read(directory)
    except RunDirError as error:
        unreadable.append(str(error))
    except UnicodeDecodeError as error:
        unreadable.append(f"{directory}: a file of the run is no UTF-8 text: {error.reason}")


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
