"""Copies a GPU sidecar's samples from another host into the run's gpu.jsonl, while both run.

The file becomes what a local sidecar would have written, and two lines of type "clock" say how far
the other host's wall clock was from ours before and after.
"""

import json
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from slo.target_probe import (
    ClockOffset,
    TargetError,
    clock_offset,
    sidecar_lines,
    sidecar_place,
)

POLL_S = 1.0


def pull(url: str, out: Path, stop: threading.Event) -> None:
    """Append the sidecar's newest header, and its samples from now on until `stop` is set.

    A sidecar that goes silent is asked again each second, and what was missed is caught up; if it
    is silent at the end, an event line says so.

    Raises:
        TargetError: at the start it does not answer, or not as a sidecar; nothing was written.
    """
    place, before = sidecar_place(url), clock_offset(url)
    since = place.lines
    with out.open("a", encoding="utf-8") as file:
        file.write(f"{place.header}\n")
        _append_clock(file, before)
        while True:
            last = stop.wait(POLL_S)
            try:
                since = _copy_new(url, file, since)
                if last:
                    _append_clock(file, clock_offset(url))
            except TargetError as error:
                if last:
                    _append_silence(file, before, error)
            if last:
                return


def _copy_new(url: str, file: TextIO, since: int) -> int:
    """Copy all lines that are there from `since` on; returns the number of the next one."""
    if sidecar_place(url).lines < since:
        since = 0  # the sidecar was restarted into a new file
    for line in sidecar_lines(url, since=since):
        file.write(f"{line}\n")
        since += 1
    file.flush()
    return since


def _append_clock(file: TextIO, clock: ClockOffset) -> None:
    file.write(json.dumps({"type": "clock", **asdict(clock)}) + "\n")
    file.flush()


def _append_silence(file: TextIO, clock: ClockOffset, error: TargetError) -> None:
    # Stamped in the other host's time, like all that is not a clock line.
    wall_ns = time.time_ns() + clock.offset_ns
    event = {"type": "event", "gpu": None, "field": "sidecar", "error": str(error)}
    file.write(json.dumps({**event, "t_wall_ns": wall_ns, "t_mono_ns": 0}) + "\n")
    file.flush()
