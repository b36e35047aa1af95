"""NVTX ranges for Nsight Systems, and torch profiler traces for Perfetto."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Marks:
    """Names stretches of work, where somebody looks; by itself it does nothing."""

    nvtx: bool = False
    requests: int = 0  # to trace, after the warm-up
    path: Path | None = None
    cuda: bool = False
    _profiler: Any = field(default=None)

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A named stretch on the thread that runs it."""
        if not self.nvtx and self._profiler is None:
            yield
            return
        import torch

        traced = torch.profiler.record_function(name) if self._profiler else nullcontext()
        marked = torch.cuda.nvtx.range(name) if self.nvtx else nullcontext()
        with traced, marked:
            yield

    def request(self, count: int = 1) -> None:
        """So many requests begin: start the trace with the first, on the thread that computes."""
        if self.path is None or self.requests <= 0 or self._profiler is not None:
            return
        import torch

        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self.cuda:
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=kinds)
        self._profiler.__enter__()

    def ended(self, count: int = 1) -> None:
        """So many requests ended: write the trace after the last one that was asked for."""
        if self._profiler is None:
            return
        self.requests -= count
        if self.requests <= 0:
            profiler, self._profiler = self._profiler, None
            profiler.__exit__(None, None, None)
            profiler.export_chrome_trace(str(self.path))
