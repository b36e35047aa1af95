"""A timer that is exact to some ten microseconds; the event loop's own wakes up to 1 ms late.

Linux gives timers of the clock's own precision as file descriptors, which the event loop can watch
like a socket. Elsewhere the event loop's timer has to do.
"""

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import gevent

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_READ = 1


class _Spec(ctypes.Structure):
    """struct itimerspec: repeat after (never), first at."""

    _fields_ = [
        ("repeat_s", ctypes.c_long),
        ("repeat_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    ]


class PreciseTimer:
    """Calls back once at the moment for which it was last armed (`time.perf_counter_ns`)."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = gevent.get_hub().loop
        self._spec = _Spec()
        self._set, self._file = _kernel_timer()
        self._watcher: Any = None
        if self._file is not None:
            self._watcher = self._loop.io(self._file, _READ)
            self._watcher.priority = self._loop.MAXPRI  # what is due goes before what has come
            self._watcher.start(self._fire)

    def arm(self, at_ns: int) -> None:
        """Call back then, or at once where that is over."""
        if self._file is None:
            self.disarm()
            wait_s = max(0.0, (at_ns - time.perf_counter_ns()) / 1e9)
            self._watcher = self._loop.timer(wait_s)
            self._watcher.start(self._callback, update=True)
            return
        self._spec.at_s, self._spec.at_ns = divmod(max(1, at_ns), 10**9)
        self._set(self._file, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None)

    def disarm(self) -> None:
        """Do not call back."""
        if self._file is None:
            if self._watcher is not None:
                self._watcher.stop()
                self._watcher.close()
                self._watcher = None
            return
        self._spec.at_s = self._spec.at_ns = 0
        self._set(self._file, 0, ctypes.byref(self._spec), None)

    def close(self) -> None:
        """Disarm for good."""
        self.disarm()
        if self._file is not None:
            self._watcher.stop()
            self._watcher.close()
            os.close(self._file)
            self._file = None
            self._watcher = None

    def _fire(self) -> None:
        self.disarm()  # until it is armed again, or it would stay readable
        self._callback()


def _kernel_timer() -> tuple[Any, int | None]:
    try:
        library = ctypes.CDLL(None)
        create, settime = library.timerfd_create, library.timerfd_settime
    except (AttributeError, OSError, TypeError):
        return None, None
    file = create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    return (settime, file) if file >= 0 else (None, None)
