"""When bytes came in: by the kernel's own stamp where it gives one, else by our reading of a clock.

Linux stamps each packet as it comes in, whatever this process is doing then. Its stamps are of
CLOCK_REALTIME, which may be stepped; ours are of CLOCK_MONOTONIC.
"""

import contextlib
import socket
import struct
import sys
import time
from typing import Any

KERNEL, PROCESS = "kernel", "process"

ROOM = socket.CMSG_SPACE(16) if hasattr(socket, "CMSG_SPACE") else 0
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("@qq")  # struct timespec
_SURE_NS = 20_000  # readings of two clocks that lie closer belong together
_STEP_NS = 1_000_000  # a clock that is only slewed moves 10 us between two ticks
_SLACK_NS = 100_000_000


class ReceiveClock:
    """Turns what `recvmsg` says beside the bytes into a time; `refresh` keeps the clocks joined."""

    def __init__(self, kind: str) -> None:
        self.by_kernel = kind == KERNEL and sys.platform == "linux" and struct.calcsize("P") == 8
        self.largest_step_ns = 0  # of the wall clock, as far as it was noticed
        self.kernel_stamps = 0
        self.own_stamps = 0
        self._offset_ns = 0  # wall clock minus ours
        self._refreshed_ns = 0
        for _ in range(10):
            self.refresh()

    @property
    def kind(self) -> str:
        """The clock of the times that were given."""
        return KERNEL if self.kernel_stamps > self.own_stamps else PROCESS

    def stamp(self, on: Any) -> bool:
        """Ask the kernel to stamp what comes to this socket; whether it will."""
        if self.by_kernel:
            with contextlib.suppress(OSError):
                on.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                return True
        return False

    def refresh(self) -> None:
        """Read both clocks; where this process was interrupted in between, keep what was known."""
        before_ns = time.perf_counter_ns()
        wall_ns = time.time_ns()
        after_ns = time.perf_counter_ns()
        if after_ns - before_ns > _SURE_NS and self._refreshed_ns:
            return
        offset_ns = wall_ns - (before_ns + after_ns) // 2
        step_ns = abs(offset_ns - self._offset_ns) if self._refreshed_ns else 0
        if step_ns > _STEP_NS:
            self.largest_step_ns = max(self.largest_step_ns, step_ns)
        self._offset_ns, self._refreshed_ns = offset_ns, after_ns

    def came_ns(self, beside: list[Any]) -> int:
        """When the bytes came that were just read."""
        now_ns = time.perf_counter_ns()
        if beside:
            seconds, rest = _STAMP.unpack(beside[0][2])
            waited_ns = now_ns + self._offset_ns - seconds * 1_000_000_000 - rest
            # Nothing waits for longer than the event loop was away. Outside of that, the wall clock
            # was stepped between the stamp and our last look at it.
            if -_SURE_NS < waited_ns < now_ns - self._refreshed_ns + _SLACK_NS:
                self.kernel_stamps += 1
                return now_ns - waited_ns if waited_ns > 0 else now_ns
        self.own_stamps += 1
        return now_ns
