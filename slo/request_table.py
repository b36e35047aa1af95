"""What a diagnosis needs of each request, as columns; nan is "not measured"."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from slo.latencies import Floats, Mask
from slo.record import Failure, Record

STAGES = ("queue", "tokenize", "prefill", "decode", "detokenize")
_COLUMNS = (
    "due_s",
    "sent_s",
    "first_token_s",
    "last_token_s",
    "ended_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "first_chunk_tokens",
    "chunks",
)
_WIDTH = len(_COLUMNS) + len(STAGES) + 2


@dataclass(slots=True)
class Rows:
    """Records noted while others read them."""

    cells: "array[float]" = field(default_factory=lambda: array("d"))
    classes: list[str] = field(default_factory=list)
    out_of_memory: int = 0

    def noting(self, records: Iterable[Record]) -> Iterator[Record]:
        """Pass records on, and keep what a diagnosis needs of each that the server answered for."""
        for record in records:
            if record.error is not Failure.DROPPED:
                self._note(record)
            yield record

    def _note(self, record: Record) -> None:
        told = record.timings or {}
        values = [getattr(record, name) for name in _COLUMNS]
        values += [told.get(f"{stage}_ms") for stage in STAGES]
        self.cells.extend(np.nan if value is None else value for value in values)
        self.cells.extend((record.phase == "measured", record.completed))
        self.classes.append(record.input_class)
        if record.error and "out of memory" in (record.error_detail or "").lower():
            self.out_of_memory += 1


@dataclass(frozen=True, slots=True)
class Requests:
    """All requests of a run, warm-up included; `judged` are those due in the measured window."""

    numbers: dict[str, Floats]
    stages_s: dict[str, Floats]  # the server's own timings
    judged: Mask
    completed: Mask
    input_class: tuple[str, ...]
    out_of_memory: int

    @property
    def good(self) -> Mask:
        """Judged and completed."""
        return self.judged & self.completed

    @property
    def ttft_s(self) -> Floats:
        """Due to first token, of those that completed."""
        return self._span("due_s", "first_token_s")

    @property
    def e2e_s(self) -> Floats:
        """Due to last token, of those that completed."""
        return self._span("due_s", "last_token_s")

    @property
    def tpot_s(self) -> Floats:
        """First to last token per token after the first chunk's, of those that completed."""
        tokens = self.numbers["output_tokens"] - self.numbers["first_chunk_tokens"]
        stretch = self._span("first_token_s", "last_token_s")
        values: Floats = np.divide(
            stretch, tokens, out=np.full(len(tokens), np.nan), where=tokens > 0
        )
        return values

    def _span(self, start: str, end: str) -> Floats:
        values = self.numbers[end] - self.numbers[start]
        return np.where(self.completed, values, np.nan)


def table(rows: Rows) -> Requests:
    """The columns of what was noted."""
    cells = np.frombuffer(rows.cells, dtype=np.float64).reshape(-1, _WIDTH).T
    width = len(_COLUMNS)
    return Requests(
        numbers=dict(zip(_COLUMNS, cells[:width], strict=True)),
        stages_s={stage: cells[width + i] / 1e3 for i, stage in enumerate(STAGES)},
        judged=cells[-2] == 1,
        completed=cells[-1] == 1,
        input_class=tuple(rows.classes),
        out_of_memory=rows.out_of_memory,
    )
