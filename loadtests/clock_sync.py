"""A worker's clock against the master's: the same on one machine, else by ping and answer."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gevent.event import AsyncResult

ROUNDS = 8
ANSWER_WITHIN_S = 5.0


def boot_id() -> str:
    """Two processes of which it is the same share one CLOCK_MONOTONIC; empty where unknown."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A container may have a time of its own on the same machine.
        return f"{booted} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


class Pings:
    """Asks workers for their clocks."""

    def __init__(self) -> None:
        self._boot_ids: dict[str, str] = {}
        self._answers: dict[str, AsyncResult] = {}

    def note_host(self, worker: str, its_boot_id: str) -> None:
        """Remember on which machine a worker runs."""
        self._boot_ids[worker] = its_boot_id

    def answer(self, worker: str, data: dict[str, Any]) -> None:
        """A worker answered; `data` holds its clock."""
        self._answers[worker].set(data["mono_ns"])

    def same_clock(self, worker: str) -> bool:
        """Whether a worker reads the clock that we read."""
        return bool(self._boot_ids[worker]) and self._boot_ids[worker] == boot_id()

    def measure(self, worker: str, send: Callable[[], None]) -> tuple[int, int]:
        """The worker's clock minus ours, and the most by which that can be wrong, ns."""
        if self.same_clock(worker):
            return 0, 0
        best: tuple[int, int] | None = None
        for _ in range(ROUNDS):
            self._answers[worker] = AsyncResult()
            sent_ns = time.perf_counter_ns()
            send()
            theirs_ns = self._answers[worker].get(timeout=ANSWER_WITHIN_S)
            came_ns = time.perf_counter_ns()
            bound_ns = (came_ns - sent_ns) // 2
            if best is None or bound_ns < best[1]:
                best = theirs_ns - (sent_ns + came_ns) // 2, bound_ns
        assert best is not None
        return best
