"""Work that can wait, done a piece at a time when the event loop has nothing else to do."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent

COLLECT_EVERY_S = 10.0


class SpareTime:
    """Calls `piece` while it says that there is more, and never before a packet that has come."""

    def __init__(self, piece: Callable[[], bool]) -> None:
        self._piece = piece
        self._watcher = gevent.get_hub().loop.idle()
        self._collect_at_s = time.monotonic() + COLLECT_EVERY_S

    def wake(self) -> None:
        """There is something to do."""
        if not self._watcher.active:
            self._watcher.start(self._do)

    def close(self) -> None:
        """Stop; what is left undone is the caller's."""
        self._watcher.stop()
        self._watcher.close()

    def _do(self) -> None:
        if not self._piece():
            self._watcher.stop()
            if time.monotonic() > self._collect_at_s:
                self._collect_at_s = time.monotonic() + COLLECT_EVERY_S
                gc.collect()


@contextmanager
def collected_in_spare_time() -> Iterator[None]:
    """Keep the garbage collector from pausing, and from walking what stays for the whole run."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
