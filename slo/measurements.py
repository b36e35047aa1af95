"""All records of a run folded into arrays, and from them the judged values of each metric."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slo import backlog, dependence
from slo.buckets import BUCKETS, bucket_of, highest_us, lowest_us
from slo.latencies import (
    SPANS,
    Columns,
    Floats,
    Mask,
    empty_columns,
    in_batches,
    mean_gaps,
    sessions,
    spans,
    tpots,
)
from slo.record import Failure, Record
from slo.rundir import Run
from slo.sample import Sample

ALL = "all"

# Reasoning modes under which a missing answer is a late one; otherwise ttfat is not applicable.
_REASONS = ("tag", "prompt-opened", "field")


@dataclass(frozen=True, slots=True)
class Measurements:
    """The records of one run, and the gaps of the judged requests by scenario and HDR bucket."""

    run: Run
    columns: Columns  # its gaps_s is empty: gaps are kept as histograms
    gaps: dict[str, NDArray[np.int64]]
    examples: dict[str, tuple[int, str]]  # by kind of failure: seq and detail of its first

    @property
    def window_s(self) -> tuple[float, float]:
        """Start and end of the measured window; a run that was stopped ends it early."""
        return self.run.window_s

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios of the judged requests, by name."""
        codes = np.unique(self.columns.words["scenario"][self.columns.judged])
        return tuple(sorted(self.columns.names["scenario"][code] for code in codes))

    @property
    def backlog(self) -> bool:
        """Whether open requests piled up all through the window: the server did not keep up."""
        numbers = self.columns.numbers
        return backlog.grows(numbers["due_s"], numbers["ended_s"], self.window_s)

    def judged(self, scenario: str = ALL) -> Mask:
        """The judged requests of one scenario, or of all."""
        mask = self.columns.judged
        return mask if scenario == ALL else mask & self.columns.where("scenario", scenario)

    def failed_masks(self) -> tuple[Mask, Mask]:
        """The failed requests: for certain, and with those that we cancelled."""
        failed = self.columns.failed
        return failed & ~self.columns.where("error", Failure.CANCELLED), failed

    def failed(self, scenario: str = ALL) -> tuple[int, int]:
        """How many judged requests failed: for certain, and with those that we cancelled."""
        judged = self.judged(scenario)
        certain, possible = self.failed_masks()
        return int((judged & certain).sum()), int((judged & possible).sum())

    def sample(self, metric: str, scenario: str = ALL) -> Sample:
        """The judged values of ttft, ttfat, e2e, the same from sent, tpot, itl or session."""
        mask = self.judged(scenario)
        if metric == "itl":
            return self._gap_sample(mask, scenario)
        due_s = self.columns.numbers["due_s"]
        if metric == "session":
            due_s, at_least, at_most = sessions(self.columns, mask)
        else:
            at_least, at_most = self.bounds(metric)
            mask &= ~np.isnan(at_most)
            due_s, at_least, at_most = due_s[mask], at_least[mask], at_most[mask]
        return Sample(
            at_least=np.sort(at_least),
            at_most=np.sort(at_most),
            cumulative=np.arange(1, len(at_most) + 1),
            due_s=due_s,
            typical=at_least,
            backlog=self.backlog,
        )

    def share_inflation(self, mask: Mask, bad: Mask) -> float:
        """How many of the requests in `mask` are worth one independent one, for the bad ones."""
        _, slowness = self.bounds("e2e")
        return dependence.of_share(self.columns.numbers["due_s"][mask], bad[mask], slowness[mask])

    def tokens_per_second(self, scenario: str = ALL) -> Floats:
        """Output tokens that came in each whole second of the measured window.

        Those of a request are spread evenly from its first to its last; requests that were due in
        warm-up count with what fell into the window, as those that drain after it count less.
        """
        start, end = self.window_s
        seconds = int(end - start)
        numbers, done = self.columns.numbers, self.columns.completed
        if scenario != ALL:
            done = done & self.columns.where("scenario", scenario)
        first, last, tokens = (
            numbers[name][done] for name in ("first_token_s", "last_token_s", "output_tokens")
        )
        known = np.isfinite(first) & np.isfinite(last) & np.isfinite(tokens)
        first, tokens = first[known], tokens[known]
        stretch = np.maximum(last[known] - first, 1e-6)
        come = [
            float((np.clip((start + edge - first) / stretch, 0, 1) * tokens).sum())
            for edge in range(seconds + 1)
        ]
        return np.diff(np.array(come))

    def bounds(self, metric: str) -> tuple[Floats, Floats]:
        """Bounds of a metric of every record: inf is over every limit, nan is not applicable."""
        columns = self.columns
        cancelled = columns.where("error", Failure.CANCELLED)
        if metric == "tpot":
            at_most = np.where(columns.failed, np.inf, tpots(columns))
            return np.where(cancelled, 0.0, at_most), at_most
        start, end = (columns.numbers[name] for name in SPANS[metric])
        seen = spans(columns, metric)
        missing = np.isnan(seen)
        over = columns.failed | missing
        if metric.startswith("ttfat") and self.run.reasoning not in _REASONS:
            if self.run.reasoning == "none":
                return np.full_like(seen, np.nan), np.full_like(seen, np.nan)
            over = columns.failed
        at_most = np.where(over & missing, np.inf, seen)
        # What we cancelled took at least as long as we waited, unless its moment had come.
        waited = np.fmax(columns.numbers["ended_s"] - start, 0.0)
        reached = end - start
        at_least = np.where(cancelled, np.where(np.isnan(reached), waited, reached), at_most)
        at_most = np.where(cancelled & ~np.isnan(reached), reached, at_most)
        return np.where(np.isnan(at_least), at_most, at_least), at_most

    def _gap_sample(self, mask: Mask, scenario: str) -> Sample:
        names = self.gaps if scenario == ALL else {scenario} & self.gaps.keys()
        counts = np.zeros(BUCKETS, np.int64)
        for name in names:
            counts += self.gaps[name]
        index = np.flatnonzero(counts)
        columns, gap_counts = self.columns, self.columns.gap_counts
        # A failed request has no gaps; it stands for as many as others had, all over the limit. One
        # that we cancelled had as many in the end, the rest of them of any length.
        good = int((mask & columns.completed & (gap_counts > 0)).sum())
        each = max(1, round(int(counts.sum()) / good)) if good else 1
        lost = self.failed(scenario)[0] * each
        cut = mask & columns.where("error", Failure.CANCELLED)
        unsure = int(np.maximum(each - gap_counts[cut], 0).sum())
        ends = np.array([unsure, *counts[index], lost]), np.array([*counts[index], lost + unsure])
        at_least, at_most, cumulative = _aligned(
            np.array([0.0, *lowest_us(index) / 1e6, np.inf]), ends[0],
            np.array([*highest_us(index) / 1e6, np.inf]), ends[1],
        )  # fmt: skip
        requests = mask & (~columns.completed | (gap_counts > 0))
        of_each = gap_counts[requests]
        return Sample(
            at_least=at_least,
            at_most=at_most,
            cumulative=cumulative,
            due_s=columns.numbers["due_s"][requests],
            typical=mean_gaps(columns)[requests],
            largest=np.where(columns.completed, columns.largest_gaps_s, np.inf)[requests],
            heaviest=float(of_each.max() / of_each.mean()) if of_each.any() else 1.0,
        )


def _aligned(
    low: Floats, of_low: NDArray[np.int64], high: Floats, of_high: NDArray[np.int64]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Two ascending lists of values and how often each stands there, as lists of equal ranks."""
    to_low, to_high = np.cumsum(of_low), np.cumsum(of_high)
    ranks = np.union1d(to_low, to_high)
    ranks = ranks[ranks > 0]
    return low[np.searchsorted(to_low, ranks)], high[np.searchsorted(to_high, ranks)], ranks


def collect(records: Iterable[Record], run: Run) -> Measurements:
    """Fold records into arrays: 1e6 of them fit into some hundred MB, gaps included."""
    parts: list[Columns] = []
    gaps: dict[str, NDArray[np.int64]] = {}
    examples: dict[str, tuple[int, str]] = {}
    for columns in in_batches(_noting(records, examples)):
        # What came before a failure is no latency; what came before our own stop is one.
        good = columns.completed | columns.where("error", Failure.CANCELLED)
        kept = np.repeat(columns.judged & good, columns.gap_counts)
        scenario = np.repeat(columns.words["scenario"], columns.gap_counts)[kept]
        bucket = bucket_of(columns.gaps_s[kept])
        for code in np.unique(scenario):
            name = columns.names["scenario"][code]
            counts = np.bincount(bucket[scenario == code], minlength=BUCKETS)
            gaps[name] = gaps.get(name, np.zeros(BUCKETS, np.int64)) + counts
        parts.append(replace(columns, gaps_s=np.empty(0)))
    return Measurements(run, _joined(parts), gaps, examples)


def _noting(records: Iterable[Record], examples: dict[str, tuple[int, str]]) -> Iterable[Record]:
    for record in records:
        kind = record.error
        if kind is not None and record.phase == "measured" and kind not in examples:
            examples[kind.value] = (record.seq, record.error_detail or "")
        yield record


def _joined(parts: list[Columns]) -> Columns:
    if not parts:
        return empty_columns()
    return Columns(
        numbers={
            name: np.concatenate([part.numbers[name] for part in parts])
            for name in parts[0].numbers
        },
        words={
            name: np.concatenate([part.words[name] for part in parts]) for name in parts[0].words
        },
        names=parts[-1].names,
        gaps_s=np.empty(0),
        gap_counts=np.concatenate([part.gap_counts for part in parts]),
        largest_gaps_s=np.concatenate([part.largest_gaps_s for part in parts]),
    )
