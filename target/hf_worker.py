"""One thread that computes: one request at a time, or those that wait together as one batch."""

import asyncio
import gc
import itertools
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from target.engines import Generate, OutOfMemoryError, Params, Step, Timings
from target.faults import Faults
from target.hf_decode import Row
from target.profiling import Marks

# Best batch by the longest prompt, as the source article's table has it.
ARTICLE_BATCHES = ((256, 8), (512, 4))
ARTICLE_REST = 2


def article_batch(prompt: int) -> int:
    """Most requests to put together when the longest has so many prompt tokens."""
    return next((batch for most, batch in ARTICLE_BATCHES if prompt <= most), ARTICLE_REST)


@dataclass(slots=True)
class Worker:
    """Takes rows from a queue, puts up to `max_batch` together, and lets `work` compute them."""

    work: Callable[[list[Row]], None]
    device: str
    max_batch: int = 1
    wait_s: float = 0.0
    by_length: bool = False
    faults: Faults = field(default_factory=Faults)
    marks: Marks = field(default_factory=Marks)
    dead: str | None = None
    running: int = 0
    last_batch: int = 0
    inbox: "queue.SimpleQueue[Row | None]" = field(default_factory=queue.SimpleQueue)
    _next: Row | None = None  # came, but did not fit the batch

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._loop, name="hf", daemon=True).start()

    def arm(self, faults: Faults) -> None:
        """From now on, requests meet these faults."""
        self.faults = faults

    def submit(self, row: Row) -> None:
        """Let a row wait for its turn."""
        if self.dead is not None:
            raise RuntimeError(self.dead)
        self.inbox.put(row)

    def close(self) -> None:
        """Let the thread end after what it computes now."""
        self.inbox.put(None)

    def gauges(self) -> Mapping[str, float]:
        """What it counts about itself."""
        return {"running": self.running, "max_batch": self.max_batch, "batch": self.last_batch}

    def _loop(self) -> None:
        while self.dead is None:
            rows = self._gather()
            if rows is None:
                return
            for row in rows:
                if row.stop.is_set():
                    row.end()
            rows = [row for row in rows if not row.done]
            if not rows:
                continue
            self.running = self.last_batch = len(rows)
            self.marks.request(len(rows))
            failed = attempt(lambda rows=rows: self._compute(rows))  # type: ignore[misc]
            self.marks.ended(len(rows))
            self.running = 0
            if isinstance(failed, OutOfMemoryError) and len(rows) > 1:
                self.max_batch = max(1, len(rows) // 2)
            for row in rows:
                if not row.done:
                    row.done = True
                    row.emit(failed or RuntimeError("the decoder gave no end"))
            if failed is not None and fatal(failed):
                self.dead = f"{type(failed).__name__}: {str(failed).splitlines()[0]}"

    def _compute(self, rows: list[Row]) -> None:
        if any(self.faults.hits("out-of-memory", row.number) for row in rows):
            exhaust(self.device)
        self.work(rows)

    def _gather(self) -> list[Row] | None:
        first = self._next or self.inbox.get()
        self._next = None
        if first is None:
            return None
        rows, longest = [first], len(first.prompt)
        deadline = time.monotonic() + self.wait_s
        while len(rows) < self._most(longest):
            try:
                row = self.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if row is None:
                self.inbox.put(None)
                break
            if row.stop.is_set():
                row.end()
                continue
            if len(rows) >= self._most(max(longest, len(row.prompt))):
                self._next = row
                break
            rows.append(row)
            longest = max(longest, len(row.prompt))
        return rows

    def _most(self, longest: int) -> int:
        return min(self.max_batch, article_batch(longest)) if self.by_length else self.max_batch


def attempt(work: Callable[[], None]) -> Exception | None:
    """The exception of `work`, if any; after a lack of memory, free what it held."""
    import torch

    try:
        work()
    except torch.OutOfMemoryError as error:
        message = f"the device has no memory for this request: {str(error).splitlines()[0]}"
    except Exception as error:
        return error
    else:
        return None
    # Only here, since the traceback of the exception holds the tensors.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return OutOfMemoryError(message)


def fatal(error: Exception) -> bool:
    """Whether the process can compute nothing any more: a CUDA context does not recover."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def exhaust(device: str) -> None:
    """Ask for more memory than there can be."""
    import torch

    if device.startswith("cuda"):
        torch.empty(2**46, dtype=torch.uint8, device=device)
    raise torch.OutOfMemoryError("an injected fault")


def generating(submit: Callable[[Row], None], seed: int) -> Generate:
    """The engine's function: a row goes to the thread, its steps come back to the event loop."""
    seeds = itertools.count(seed)
    numbers = itertools.count()

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[Step | Timings | Exception] = asyncio.Queue()

        def emit(part: Step | Timings | Exception) -> None:
            loop.call_soon_threadsafe(parts.put_nowait, part)

        drawn = params if params.seed is not None else replace(params, seed=next(seeds))
        row = Row(prompt, drawn, emit, next(numbers))
        submit(row)
        ended = False
        try:
            while not isinstance(part := await parts.get(), Timings):
                if isinstance(part, Exception):
                    ended = True
                    raise part
                yield part
            ended = True
            yield part
        finally:  # the client may be gone: the thread looks at `stop` before each token
            row.stop.set()
            # Its slot is free when the row has left the batch; one that still waits holds nothing.
            while row.started_s and not ended:
                ended = isinstance(await parts.get(), Timings | Exception)

    return generate
