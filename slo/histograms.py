"""latency.hlog: HdrHistogram log V2, one interval a second and tag, in microseconds.

A value lies in the second in which its request was due. Only finite values are recorded; failures
are counted exactly under `Tag=<scenario>.failed`, a histogram that holds the value 1 as often as
requests failed. hdrh's own writer never writes `Tag=`, so the lines are made here.
"""

import binascii
import math
import re
import struct
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from slo.buckets import BUCKETS, DIGITS, HIGHEST_US, LOWEST_US, bucket_of, highest_us
from slo.latencies import Columns, in_batches, latenesses, spans, tpots
from slo.record import Record
from slo.rundir import LATENCY, RunDirError, read_records, read_run, write_atomic

Ints = NDArray[np.int64]

FAILED = "failed"
_PER_REQUEST: dict[str, Callable[[Columns], NDArray[np.float64]]] = {
    "ttft": lambda columns: spans(columns, "ttft"),
    "ttfat": lambda columns: spans(columns, "ttfat"),
    "e2e": lambda columns: spans(columns, "e2e"),
    "tpot": tpots,
    "ttft_from_sent": lambda columns: spans(columns, "ttft_from_sent"),
    "e2e_from_sent": lambda columns: spans(columns, "e2e_from_sent"),
    "lateness": latenesses,
}
METRICS = (*_PER_REQUEST, "itl", FAILED)

# One key holds second, scenario, metric and bucket, so that one sort groups them all.
_BUCKET_BITS = 15
_METRIC_BITS = 4
_SCENARIO_BITS = 12

# A histogram of ours unpacks to at most 9 bytes a bucket; more is no histogram of ours.
_MOST_BYTES = 40 + 9 * BUCKETS
_MOST_LINE = 2 * _MOST_BYTES
_SETTINGS = struct.Struct(">IIIIQQ")
_LINE = re.compile(r"^(?:Tag=([^,]+),)?([\d.]+),([\d.]+),([\d.]+),(\S+)$")


@dataclass(frozen=True, slots=True)
class Counts:
    """A histogram without its empty buckets: `count[i]` values lie in bucket `index[i]`."""

    index: Ints
    count: Ints

    @property
    def total(self) -> int:
        return int(self.count.sum())


def percentile_rank(n: int, percentile: float) -> int:
    """Rank ceil(p/100 * n), from 1: hdrh's own rule is one rank low for 180 of the n below 400."""
    exact = percentile * n / 100
    nearest = round(exact)
    # 95 * 20 / 100 is 19 on paper, and may come out a hair above it.
    return max(1, nearest if math.isclose(exact, nearest, rel_tol=1e-12) else math.ceil(exact))


def value_at_s(counts: Counts, percentile: float) -> float:
    """The value of that percentile in seconds, as HDR tools report it: its bucket's highest."""
    rank = percentile_rank(counts.total, percentile)
    place = int(np.searchsorted(np.cumsum(counts.count), rank))
    return float(highest_us(counts.index[place : place + 1])[0]) / 1e6


def merged(parts: Iterable[Counts]) -> Counts:
    """The histogram of all values of several."""
    everything = list(parts)
    dense = np.zeros(BUCKETS, np.int64)
    for part in everything:
        dense[part.index] += part.count
    index = np.flatnonzero(dense)
    return Counts(index, dense[index])


def write_hlog(directory: Path) -> None:
    """Write latency.hlog from run.json and requests.jsonl, atomically.

    Raises:
        RunDirError: one of the two cannot be read.
    """
    run = read_run(directory)
    started = run.t0_wall_ns / 1e9
    when = datetime.fromtimestamp(started, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = [
        "#[Histogram log format version 1.3]",
        "#[Tailgate: values in us, Interval_Max in ms; <scenario>.failed counts failures]",
        f"#[StartTime: {started:.3f} (seconds since epoch), {when}]",
        f"#[BaseTime: {started:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for (tag, second), counts in by_second(read_records(directory)).items():
        top_ms = int(highest_us(counts.index[-1:])[0]) / 1e3
        lines.append(f"Tag={tag},{second}.000,1.000,{top_ms:.3f},{encode(counts)}")
    write_atomic(directory / LATENCY, "\n".join(lines) + "\n")


def by_second(records: Iterable[Record]) -> dict[tuple[str, int], Counts]:
    """Histograms by (tag, due second) of all records, warm-up included, in order of time."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    scenarios: tuple[str, ...] = ()
    for columns in in_batches(records):
        scenarios = columns.names["scenario"]
        fresh, fresh_counts = np.unique(np.concatenate(list(_keys(columns))), return_counts=True)
        keys, counts = _added(keys, counts, fresh, fresh_counts)
    return dict(_groups(keys, counts, scenarios))


def _keys(columns: Columns) -> Iterator[Ints]:
    second = np.maximum(columns.numbers["due_s"], 0).astype(np.int64)
    place = (second << _SCENARIO_BITS | columns.words["scenario"]) << _METRIC_BITS
    for metric, name in enumerate(METRICS):
        if name == "itl":
            where, values = np.repeat(place, columns.gap_counts), columns.gaps_s
        elif name == FAILED:
            where = place[columns.failed]
            values = np.full(len(where), 1e-6)
        else:
            values = _PER_REQUEST[name](columns)
            finite = np.isfinite(values)
            where, values = place[finite], values[finite]
        yield (where | metric) << _BUCKET_BITS | bucket_of(values)


def _added(keys: Ints, counts: Ints, fresh: Ints, fresh_counts: Ints) -> tuple[Ints, Ints]:
    both, inverse = np.unique(np.concatenate([keys, fresh]), return_inverse=True)
    total = np.zeros(len(both), np.int64)
    np.add.at(total, inverse, np.concatenate([counts, fresh_counts]))
    return both, total


def _groups(
    keys: Ints, counts: Ints, scenarios: tuple[str, ...]
) -> Iterator[tuple[tuple[str, int], Counts]]:
    groups = keys >> _BUCKET_BITS
    edges = np.flatnonzero(np.diff(groups, prepend=-1, append=-1))
    for start, end in pairwise(edges):
        group = int(groups[start])
        metric = METRICS[group & (1 << _METRIC_BITS) - 1]
        scenario = scenarios[group >> _METRIC_BITS & (1 << _SCENARIO_BITS) - 1]
        index = keys[start:end] & (1 << _BUCKET_BITS) - 1
        second = group >> _METRIC_BITS + _SCENARIO_BITS
        yield (tag_of(scenario, metric), second), Counts(index, counts[start:end])


def tag_of(scenario: str, metric: str) -> str:
    """The tag of one metric of one scenario; what would end a tag becomes "_"."""
    return re.sub(r"[,\s]", "_", scenario) + f".{metric}"


def encode(counts: Counts) -> str:
    """The histogram as HDR tools exchange it: V2, compressed, base64."""
    histogram = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    np.frombuffer(histogram.counts, dtype=np.uint64)[counts.index] = counts.count
    # The encoder writes up to the bucket of the maximum, and nothing where the total is 0.
    histogram.total_count = counts.total
    histogram.max_value = int(highest_us(counts.index[-1:])[0])
    return str(histogram.encode().decode("ascii"))


def read_hlog(path: Path) -> dict[tuple[str, int], Counts]:
    """Histograms by (tag, second) of a latency.hlog.

    Raises:
        RunDirError: missing, cut off, or a line that is no histogram of ours; names file and line.
    """
    found: dict[tuple[str, int], Counts] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_LINE), ""), 1):
                if not line.endswith("\n"):
                    raise RunDirError(f"{path}:{number}: the line is cut off or far too long")
                if line.startswith(("#", '"')):
                    continue
                tag, second, counts = _read_line(line, f"{path}:{number}")
                found[tag, second] = counts
    except FileNotFoundError:
        raise RunDirError(f"{path}: missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirError(f"{path}: cannot be read: {error}") from None
    return found


def _read_line(line: str, where: str) -> tuple[str, int, Counts]:
    match = _LINE.match(line)
    if not match:
        raise RunDirError(f"{where}: no line of a histogram log: {line[:60].strip()!r}")
    tag, start, _, _, blob = match.groups()
    try:
        return tag or "", int(float(start)), decode(blob)
    except (ValueError, IndexError, zlib.error, binascii.Error, struct.error) as error:
        raise RunDirError(f"{where}: the histogram cannot be decoded: {error}") from None


def decode(blob: str) -> Counts:
    """The histogram of a blob made by `encode`; one of another range, or a huge one, is refused.

    Raises:
        ValueError: no histogram of ours.
    """
    packed = b64decode(blob, validate=True)
    # hdrh's own guard against blobs that unpack without end never fires, so it is asked first.
    unpacked = zlib.decompressobj().decompress(packed[8:], _MOST_BYTES + 1)
    if len(unpacked) > _MOST_BYTES:
        raise ValueError("it unpacks to more than a histogram can hold")
    *_, digits, lowest, highest = _SETTINGS.unpack_from(unpacked)
    if (lowest, highest, digits) != (LOWEST_US, HIGHEST_US, DIGITS):
        raise ValueError(f"its range is {lowest} to {highest} with {digits} digits, not ours")
    try:
        histogram = HdrHistogram.decode(blob)
    except Exception as error:  # hdrh raises bare Exceptions of its own
        raise ValueError(f"{type(error).__name__}: {error}") from None
    dense = np.frombuffer(histogram.counts, dtype=np.uint64).astype(np.int64)
    index = np.flatnonzero(dense)
    return Counts(index, dense[index])
