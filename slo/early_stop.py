"""When a running load can be ended because its verdict is certain.

Certain is a miss that stands even if every request that is still to come meets its target: then the
planned run would miss it too, so that ending it early takes no chance of its own.
"""

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from slo import dependence
from slo.latencies import Mask
from slo.measurements import ALL, Measurements, collect
from slo.objectives import PER_REQUEST, Objective, Slo
from slo.progress import Tail
from slo.quantile_test import chance
from slo.record import Record
from slo.rundir import REQUESTS, SCHEDULE, Run, RunDirError, read_run

EVERY_S = 5.0
# A look goes through all records. Where each waits for a tenth more of them, all looks of a run
# together cost no more than some eleven at its end, and a miss is seen a tenth later at most.
_GROWTH = 1.1

_RECORD = TypeAdapter(Record)


@dataclass(slots=True)
class Watch:
    """A run that is still going, under objectives."""

    directory: Path
    slo: Slo
    tail: Tail = field(init=False)
    run: Run | None = None
    planned: Counter[str] = field(default_factory=Counter)  # judged arrivals by scenario
    records: list[Record] = field(default_factory=list)
    seen: int = 0  # so many of them at the last look

    def __post_init__(self) -> None:
        self.tail = Tail(self.directory / REQUESTS)

    def why_stop(self) -> str | None:
        """Why the run may end now; None: let it go on."""
        if self.run is None and not self._begun():
            return None
        assert self.run is not None
        for line in self.tail.lines():
            try:
                self.records.append(_RECORD.validate_json(line))
            except ValidationError:
                return None  # the judge names it
        if len(self.records) < max(_GROWTH * self.seen, 1):
            return None
        self.seen = len(self.records)
        measured = collect(self.records, self.run)
        gating = [o for o in self.slo.objectives if o.severity == "gate"]
        for objective in gating:
            missed = certainly_missed(objective, measured, self.planned, len(gating))
            if missed:
                return missed
        return None

    def _begun(self) -> bool:
        try:
            self.run = read_run(self.directory)
            with (self.directory / SCHEDULE).open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["phase"] == "measured"]
        except (RunDirError, OSError, KeyError, csv.Error):
            self.run = None
            return False
        self.planned = Counter(row["scenario"] for row in rows)
        self.planned[ALL] = len(rows)
        return True


def certainly_missed(
    objective: Objective, measured: Measurements, planned: Counter[str], tests: int
) -> str | None:
    """In words, that the planned run would miss it whatever comes; None where that is not so."""
    bad = _bad(objective, measured)
    if bad is None or objective.allowed is None:
        return None
    judged = measured.judged(objective.scenario)
    seen, over = int(judged.sum()), int((judged & bad).sum())
    if not over:
        return None
    inflation = _inflation(objective, measured, judged, bad)
    total = max(planned[objective.scenario], seen)
    # Each of several misses must be surer (Bonferroni, which is stricter than Holm).
    alpha = (1 - objective.confidence) / tests
    for n in (seen, total):
        if chance(over / inflation, n / inflation, objective.allowed) > alpha:
            return None
    return (
        f"{objective.label} is missed for certain: {over:,} of {total:,} planned requests miss "
        f"{objective.limit_text} already"
    )


def _bad(objective: Objective, measured: Measurements) -> Mask | None:
    certain, _ = measured.failed_masks()
    if objective.metric == "error_rate":
        return certain
    limits = [(part.metric, part.limit) for part in objective.parts]
    if objective.metric in PER_REQUEST and objective.metric != "itl":
        limits = [(objective.metric, objective.limit)]
    if not limits:
        return None
    for metric, limit in limits:
        at_least, _ = measured.bounds(metric)
        certain = certain | (at_least > limit)
    return certain


def _inflation(objective: Objective, measured: Measurements, judged: Mask, bad: Mask) -> float:
    if objective.percentile is None:
        return measured.share_inflation(judged, bad)
    values, _ = measured.bounds(objective.metric)
    known = judged & ~np.isnan(values)
    due_s = measured.columns.numbers["due_s"][known]
    return dependence.of_percentile(due_s, values[known], objective.percentile)


def until(
    directory: Path, slo: Slo, budget_s: float | None, now_s: Callable[[], float]
) -> Callable[[], str | None]:
    """A function that says, asked often, why the run is to end now; it looks every few seconds."""
    watch, started = Watch(directory, slo), now_s()
    looked = started

    def why() -> str | None:
        nonlocal looked
        if budget_s is not None and now_s() - started >= budget_s:
            return f"the budget of {budget_s:g} s is spent"
        if now_s() - looked < EVERY_S:
            return None
        looked = now_s()
        return watch.why_stop()

    return why
