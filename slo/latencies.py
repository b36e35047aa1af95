"""What a latency is: the one definition of each, for one record and for a million of them.

Counted from the moment a request was due, never from the moment it could be sent; the same from
`sent` is kept beside it, so that the client's own part shows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from slo.record import Failure, Record

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]

# From which moment to which a latency runs.
SPANS = {
    "ttft": ("due_s", "first_token_s"),
    "ttfat": ("due_s", "first_answer_token_s"),
    "e2e": ("due_s", "last_token_s"),
    "ttft_from_sent": ("sent_s", "first_token_s"),
    "ttfat_from_sent": ("sent_s", "first_answer_token_s"),
    "e2e_from_sent": ("sent_s", "last_token_s"),
}

_NUMBERS = (
    "seq",
    "worker",
    "due_s",
    "sent_s",
    "first_token_s",
    "first_answer_token_s",
    "last_token_s",
    "ended_s",
    "output_tokens",
    "first_chunk_tokens",
    "chunks",
    "max_tokens",
    "prompt_tokens",
    "cached_tokens",
    "text_tokens",
    "session",
    "think_s",
)
_WORDS = ("scenario", "input_class", "phase", "error", "tokens_from")
_BATCH = 20_000


def span_s(record: Record, metric: str) -> float | None:
    """One latency of SPANS in seconds; None where the request failed or the moment never came."""
    start, end = (getattr(record, name) for name in SPANS[metric])
    if not record.completed or start is None or end is None:
        return None
    return float(end - start)


def ttft_s(record: Record) -> float | None:
    """Due to first visible text, in seconds."""
    return span_s(record, "ttft")


def ttfat_s(record: Record) -> float | None:
    """Due to first visible text of the answer, in seconds."""
    return span_s(record, "ttfat")


def e2e_s(record: Record) -> float | None:
    """Due to last token, in seconds."""
    return span_s(record, "e2e")


def lateness_s(record: Record) -> float | None:
    """Due to sent, in seconds: the generator's part; None where it was not sent."""
    return None if record.sent_s is None else record.sent_s - record.due_s


def tpot_s(record: Record) -> float | None:
    """Seconds per output token after the first chunk; None for an answer of one chunk."""
    if not record.completed or record.first_token_s is None or record.last_token_s is None:
        return None
    if record.output_tokens is None or record.first_chunk_tokens is None:
        return None
    tokens = record.output_tokens - record.first_chunk_tokens
    return (record.last_token_s - record.first_token_s) / tokens if tokens > 0 else None


def gaps_s(record: Record) -> tuple[float, ...]:
    """Seconds between the chunks that carried text."""
    return tuple(gap / 1e3 for gap in record.itl_ms)


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as columns: numbers with nan for "absent", words as codes into `names`.

    `gaps_s` are the gaps of all records one after the other, `gap_counts` of them per record, of
    which `largest_gaps_s` is the largest, nan without one.
    """

    numbers: dict[str, Floats]
    words: dict[str, Codes]
    names: dict[str, tuple[str, ...]]
    gaps_s: Floats
    gap_counts: Codes
    largest_gaps_s: Floats

    def __len__(self) -> int:
        return len(self.gap_counts)

    def where(self, word: str, name: str) -> Mask:
        """The records whose `word` is `name`; "" is absent."""
        names = self.names[word]
        code = names.index(name) if name in names else -1
        return np.equal(self.words[word], code)

    @property
    def completed(self) -> Mask:
        """The records that ended well."""
        return self.where("error", "")

    @property
    def failed(self) -> Mask:
        """The records that ended badly through the server: neither completed nor dropped."""
        return ~self.completed & ~self.where("error", Failure.DROPPED)

    @property
    def judged(self) -> Mask:
        """The records that are due in the measured window and were not dropped by the generator."""
        return self.where("phase", "measured") & ~self.where("error", Failure.DROPPED)


def empty_columns() -> Columns:
    """The columns of no record."""
    return _columns([], {word: {} for word in _WORDS})


def in_batches(records: Iterable[Record], size: int = _BATCH) -> Iterator[Columns]:
    """Turn records into columns, a batch at a time, so that no list of all records is held."""
    tables: dict[str, dict[str, int]] = {word: {} for word in _WORDS}
    stream = iter(records)
    while batch := list(islice(stream, size)):
        yield _columns(batch, tables)


def _columns(batch: list[Record], tables: dict[str, dict[str, int]]) -> Columns:
    # None becomes nan; integers stay exact below 2**53.
    matrix = np.array(list(map(attrgetter(*_NUMBERS), batch)), dtype=np.float64)
    matrix = matrix.reshape(len(batch), len(_NUMBERS))
    words: dict[str, Codes] = {}
    for word in _WORDS:
        table = tables[word]
        codes = (table.setdefault(getattr(r, word) or "", len(table)) for r in batch)
        words[word] = np.fromiter(codes, np.int64, len(batch))
    counts = np.fromiter((len(r.itl_ms) for r in batch), np.int64, len(batch))
    gaps = chain.from_iterable(r.itl_ms for r in batch)
    return Columns(
        numbers=dict(zip(_NUMBERS, np.ascontiguousarray(matrix.T), strict=True)),
        words=words,
        names={word: tuple(str(name) for name in table) for word, table in tables.items()},
        gaps_s=np.fromiter(gaps, np.float64, int(counts.sum())) / 1e3,
        gap_counts=counts,
        largest_gaps_s=np.array([max(r.itl_ms, default=np.nan) for r in batch]) / 1e3,
    )


def spans(columns: Columns, metric: str) -> Floats:
    """`span_s` of all records; nan where it is None."""
    start, end = SPANS[metric]
    values = columns.numbers[end] - columns.numbers[start]
    return np.where(columns.completed, values, np.nan)


def tpots(columns: Columns) -> Floats:
    """`tpot_s` of all records; nan where it is None."""
    numbers = columns.numbers
    tokens = numbers["output_tokens"] - numbers["first_chunk_tokens"]
    stretch = numbers["last_token_s"] - numbers["first_token_s"]
    usable = columns.completed & (tokens > 0)
    values: Floats = np.divide(stretch, tokens, out=np.full(len(columns), np.nan), where=usable)
    return values


def latenesses(columns: Columns) -> Floats:
    """`lateness_s` of all records; nan where it is None."""
    return np.subtract(columns.numbers["sent_s"], columns.numbers["due_s"])


def mean_gaps(columns: Columns) -> Floats:
    """Mean gap between a record's chunks of text, inf where it failed."""
    stretch = columns.numbers["last_token_s"] - columns.numbers["first_token_s"]
    mean = stretch / np.maximum(columns.gap_counts, 1)
    return np.where(columns.completed & np.isfinite(mean), mean, np.inf)


def sessions(columns: Columns, mask: Mask) -> tuple[Floats, Floats, Floats]:
    """Of each session: when its first turn was due, and what it took at least and at most.

    From that moment to the last turn's last token, without the think times; inf where a turn
    failed. A session of which we cancelled a turn took at least as long as we waited.
    """
    numbers, cancelled = columns.numbers, columns.where("error", Failure.CANCELLED)[mask]
    _, which = np.unique(numbers["session"][mask], return_inverse=True)
    count = int(which.max()) + 1 if len(which) else 0
    due = _folded(np.minimum, np.inf, which, count, numbers["due_s"][mask])
    think = np.bincount(which, np.nan_to_num(numbers["think_s"][mask]), minlength=count)
    last = np.fmax(numbers["last_token_s"], numbers["ended_s"])[mask]
    last = np.where(columns.completed[mask], numbers["last_token_s"][mask], last)
    took = _folded(np.maximum, -np.inf, which, count, np.nan_to_num(last)) - due - think
    ill = np.bincount(which, ~columns.completed[mask] & ~cancelled, minlength=count) > 0
    unsure = np.bincount(which, cancelled, minlength=count) > 0
    at_least = np.where(ill, np.inf, np.maximum(took, 0.0))
    return due, at_least, np.where(unsure, np.inf, at_least)


def _folded(fold: "np.ufunc", start: float, which: Codes, count: int, values: Floats) -> Floats:
    folded = np.full(count, start)
    fold.at(folded, which, values)
    return folded
