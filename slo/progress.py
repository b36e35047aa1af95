"""What a run does right now, read from its run directory as the directory grows."""

import csv
import math
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from slo import latencies, quantities, rundir
from slo.record import Record

WINDOW_S = 10.0
PLAIN_EVERY_S = 10.0
# Records reach the directory about a second after they ended; up to then nothing is known.
KNOWN_AFTER_S = 1.5

_RECORD = TypeAdapter(Record)

Values = npt.NDArray[np.float64]
Pair = tuple[float | None, float | None]  # P50, P95; None: no request yet; inf: among the failures


@dataclass(slots=True)
class Tail:
    """New whole lines of a file that another process appends to; reads each byte once."""

    path: Path
    read: int = 0
    rest: bytes = b""

    def lines(self) -> list[bytes]:
        """Lines that were completed since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.read)
                new = file.read()
        except FileNotFoundError:
            return []
        self.read += len(new)
        *whole, self.rest = (self.rest + new).split(b"\n")
        return whole


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a run. Times are seconds from its start."""

    now_s: float
    total_s: float
    scheduled: int
    ended: int
    offered_per_s: float
    achieved_per_s: float
    in_flight: int
    recent: dict[str, Pair]  # by metric, of requests that ended in the last seconds
    whole: dict[str, Pair]  # by metric, of the measured window
    errors: dict[str, int]
    lateness_p99_s: float | None


def _floats() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class Progress:
    """What is known of a running run; `update` reads on, `at` says how it stands."""

    requests: Tail
    schedule: list[float] = field(default_factory=list)
    ended_s: "array[float]" = field(default_factory=_floats)
    late_s: "array[float]" = field(default_factory=_floats)
    measured: "array[int]" = field(default_factory=lambda: array("b"))
    latency_s: dict[str, "array[float]"] = field(
        default_factory=lambda: {"TTFT": _floats(), "E2E": _floats()}
    )
    errors: Counter[str] = field(default_factory=Counter)
    run: rundir.Run | None = None

    def update(self, directory: Path) -> None:
        """Read what the run directory has gained."""
        if self.run is None:
            try:
                self.run = rundir.read_run(directory)
                with (directory / rundir.SCHEDULE).open(newline="") as file:
                    due = [row["due_s"] for row in csv.DictReader(file)]
                self.schedule = sorted(float(text) for text in due if text)
            except (rundir.RunDirError, OSError, KeyError, ValueError):
                self.run = None  # not written yet
                return
        for line in self.requests.lines():
            try:
                self._add(_RECORD.validate_json(line))
            except ValidationError:
                continue  # the judge names it; a live view does not end a run

    def _add(self, record: Record) -> None:
        self.ended_s.append(record.due_s if record.ended_s is None else record.ended_s)
        self.measured.append(record.phase == "measured")
        self.late_s.append(math.nan if record.sent_s is None else record.sent_s - record.due_s)
        for metric, value in (
            ("TTFT", latencies.ttft_s(record)),
            ("E2E", latencies.e2e_s(record)),
        ):
            self.latency_s[metric].append(math.inf if value is None else value)
        if record.error is not None:
            self.errors[record.error] += 1

    def at(self, now_s: float) -> Snapshot | None:
        """How the run stands; None before it has begun."""
        if self.run is None:
            return None
        known_s = max(now_s - KNOWN_AFTER_S, 0.0)
        ended_s = np.array(self.ended_s)
        measured = np.array(self.measured, dtype=bool)
        recent = ended_s > now_s - WINDOW_S
        late_s = np.array(self.late_s)
        span_s = min(WINDOW_S, known_s) or math.inf
        due_now = bisect_right(self.schedule, known_s)
        due_before = bisect_right(self.schedule, known_s - span_s) if known_s > WINDOW_S else 0
        done = np.isfinite(np.array(self.latency_s["E2E"]))
        done_lately = int(np.sum(done & (ended_s > known_s - span_s) & (ended_s <= known_s)))
        return Snapshot(
            now_s=now_s,
            total_s=self.run.warmup_s + self.run.duration_s,
            scheduled=len(self.schedule),
            ended=len(ended_s),
            offered_per_s=(due_now - due_before) / span_s,
            achieved_per_s=done_lately / span_s,
            in_flight=max(due_now - int(np.sum(ended_s <= known_s)), 0),
            recent={name: _pair(np.array(of)[recent]) for name, of in self.latency_s.items()},
            whole={name: _pair(np.array(of)[measured]) for name, of in self.latency_s.items()},
            errors=dict(self.errors),
            lateness_p99_s=_percentile(late_s[np.isfinite(late_s)], 99),
        )


def _percentile(values: Values, p: float) -> float | None:
    if not len(values):
        return None
    return float(np.sort(values)[math.ceil(p / 100 * len(values)) - 1])


def _pair(values: Values) -> Pair:
    return _percentile(values, 50), _percentile(values, 95)


@contextmanager
def view(directory: Path, console: Console) -> Iterator[Callable[[], None]]:
    """Show the run in a directory: a live panel on a terminal, else a line every few seconds.

    Yields the function to call often; it reads and draws.
    """
    progress = Progress(Tail(directory / rundir.REQUESTS))

    def now() -> Snapshot | None:
        progress.update(directory)
        t0_ns = progress.run.t0_mono_ns if progress.run else 0
        return progress.at((time.monotonic_ns() - t0_ns) / 1e9)

    if not console.is_terminal:
        next_s = PLAIN_EVERY_S

        def plain() -> None:
            nonlocal next_s
            snapshot = now()
            if snapshot is not None and snapshot.now_s >= next_s:
                next_s = snapshot.now_s // PLAIN_EVERY_S * PLAIN_EVERY_S + PLAIN_EVERY_S
                console.print(line(snapshot), markup=False, highlight=False, soft_wrap=True)

        yield plain
        return
    with Live(console=console, auto_refresh=False) as live:

        def drawn() -> None:
            snapshot = now()
            if snapshot is not None:
                live.update(panel(snapshot), refresh=True)

        yield drawn


def line(snapshot: Snapshot) -> str:
    """The run in one line, for a log."""
    ttft, e2e = (_show_pair(snapshot.recent[metric]) for metric in ("TTFT", "E2E"))
    return (
        f"{_clock(snapshot)}  offered {snapshot.offered_per_s:.1f}/s"
        f"  completed {snapshot.achieved_per_s:.1f}/s  in flight {snapshot.in_flight}"
        f"  P50/P95 TTFT {ttft}  E2E {e2e}  errors {_show_errors(snapshot)}"
        f"  late P99 {_show(snapshot.lateness_p99_s)}"
    )


def panel(snapshot: Snapshot) -> Panel:
    """The run as a panel, for a terminal."""
    table = Table.grid(padding=(0, 3))
    table.add_row(
        "offered", f"{snapshot.offered_per_s:.1f}/s", "in flight", f"{snapshot.in_flight}"
    )
    table.add_row(
        "completed",
        f"{snapshot.achieved_per_s:.1f}/s",
        "ended",
        # A closed loop has no plan.
        f"{snapshot.ended}" + (f" of {snapshot.scheduled}" if snapshot.scheduled else ""),
    )
    for metric in snapshot.whole:
        table.add_row(
            f"{metric} P50 / P95",
            _show_pair(snapshot.recent[metric]),
            "judged so far",
            _show_pair(snapshot.whole[metric]),
        )
    table.add_row("errors", _show_errors(snapshot), "late P99", _show(snapshot.lateness_p99_s))
    return Panel(table, title=_clock(snapshot), expand=False)


def _clock(snapshot: Snapshot) -> str:
    if snapshot.now_s > snapshot.total_s:
        return f"{snapshot.total_s:.0f} s, waiting for the last answers"
    return f"{snapshot.now_s:.0f} of {snapshot.total_s:.0f} s"


def _show(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return "failed" if math.isinf(seconds) else quantities.show_s(seconds)


def _show_pair(pair: Pair) -> str:
    return f"{_show(pair[0])} / {_show(pair[1])}"


def _show_errors(snapshot: Snapshot) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in sorted(snapshot.errors.items())) or "0"
