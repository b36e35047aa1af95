"""Who may come in, and who computes: bounded running and waiting, first come first served."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class BusyError(Exception):
    """No place is free, or the server is draining; `retry_after_s` is when to ask again."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Admission:
    """At most `slots` requests run and at most `queue` wait; any more is refused at once.

    Where the engine lets requests wait inside, all of them are handed over at once.
    """

    def __init__(self, slots: int, queue: int, *, hand_over: bool = False) -> None:
        self.slots = slots
        self.queue = queue
        self.held = 0  # running and waiting
        self.running = 0
        self.draining = False
        # Wakes its waiters in order.
        self._free = asyncio.Semaphore(slots + queue if hand_over else slots)
        self._empty = asyncio.Event()
        self._service_s = 1.0  # of the request that ended last

    @property
    def waiting(self) -> int:
        """Requests that are inside and not yet running."""
        return self.held - self.running

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the running and waiting ones; raises BusyError when there is none."""
        if self.draining:
            raise BusyError("the server is shutting down", 5)
        if self.held >= self.slots + self.queue:
            wait_s = self._service_s * (self.waiting + 1) / self.slots
            raise BusyError(
                f"the server is full: {self.running} requests run and {self.waiting} wait",
                min(60, max(1, math.ceil(wait_s))),
            )
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
            if self.held == 0:
                self._empty.set()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait in line for the engine, and keep it for the block."""
        async with self._free:
            self.running += 1
            start = time.monotonic()
            try:
                yield
            finally:
                self.running -= 1
                self._service_s = time.monotonic() - start

    async def drain(self, timeout_s: float) -> int:
        """Admit no more and wait for those inside; returns how many were left at the timeout."""
        self.draining = True
        self._empty.clear()
        if self.held:
            try:
                await asyncio.wait_for(self._empty.wait(), timeout_s)
            except TimeoutError:
                return self.held
        return 0
