"""What the load engine itself takes: processor time, memory, and how late its event loop is."""

import contextlib
import time
from pathlib import Path
from typing import Any

from loadtests.receive_clock import ReceiveClock
from loadtests.spread import Spread


class ClientWatch:
    """Watches one worker over its part of a run."""

    def __init__(self, clock: ReceiveClock) -> None:
        self.connects = Spread()  # from connect() until a connection can be written to
        self.opened = 0
        self._clock = clock
        self._lag = Spread()
        self._cpu_s = time.process_time()
        self._began_s = time.monotonic()
        self._ticked_ns = 0

    def tick(self, every_ns: int) -> None:
        """The event loop calls this at a beat; how much later than that is its lag."""
        self._clock.refresh()
        now_ns = time.perf_counter_ns()
        if self._ticked_ns:
            self._lag.add_ns(now_ns - self._ticked_ns - every_ns)
        self._ticked_ns = now_ns

    def opening_took(self, nanos: int) -> None:
        """A connection was opened."""
        self.opened += 1
        self.connects.add_ns(nanos)

    def told(self) -> dict[str, Any]:
        """All of it, as a message."""
        took_s = max(1e-9, time.monotonic() - self._began_s)
        return {
            "cpu_share": round((time.process_time() - self._cpu_s) / took_s, 4),
            "rss_mib": _peak_rss_mib(),
            "loop_lag": self._lag.pairs(),
            "connects": self.connects.pairs(),
            "receive_clock": self._clock.kind,
            "clock_step_ns": self._clock.largest_step_ns,
        }


def _peak_rss_mib() -> float:
    """Of this process; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    return 0.0
