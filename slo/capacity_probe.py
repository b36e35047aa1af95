"""One probe against a real target: cool down, send the load, judge it, and keep what it says."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from slo import cooldown, drive, early_stop, rundir
from slo.capacity import Evidence, Probe
from slo.capacity_plan import Ask
from slo.capacity_search import Knee
from slo.causes import causes
from slo.diagnosis import NOT_MEASURED
from slo.evidence import read_evidence
from slo.judge import decisions_of, judge
from slo.measurements import Measurements
from slo.objectives import Objective, Slo
from slo.quantile_test import Decision
from slo.verdict import Result, Verdict
from slo.verdict_file import write_verdict

# Met by load, not spoilt by it: at a low rate they fail for want of requests.
_GROW_WITH_LOAD = ("output_tokens_per_s",)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all probes of a search share. `over` is rate or concurrency."""

    load: drive.Load
    slo: Slo
    out: Path
    over: str
    gpu: str
    ready_timeout_s: float
    cooldown_s: float
    console: Console


def judged_by(slo: Slo) -> Slo:
    """The objectives without what a search changes: the rate, its process, how long it lasts."""
    load = replace(slo.load, rate_per_s=None, arrival=None, duration_s=None, warmup_s=None)
    kept = tuple(o for o in slo.objectives if o.metric not in _GROW_WITH_LOAD and not o.relative)
    return replace(slo, load=load, objectives=kept)


def probe(setting: Setting, idle: cooldown.Idle, ask: Ask, number: int) -> Probe:
    """Send one load and judge it.

    Raises:
        KeyboardInterrupt: it was stopped by the user; what was measured is no probe.
        DriveError, TargetError: the load cannot be sent at all.
    """
    began = time.monotonic()
    busy = cooldown.wait_until_empty(idle, timeout_s=setting.cooldown_s)
    directory = setting.out / f"probe-{number:02d}-{ask.rate:.4g}"
    if busy:
        spent = time.monotonic() - began
        return Probe(ask.rate, Result.INVALID, 0, spent, why=f"the queue does not empty: {busy}")
    until = partial(early_stop.until, slo=setting.slo, budget_s=None, now_s=time.monotonic)
    _, code = drive.run(
        _load(setting, ask, number),
        directory,
        force=True,
        ready_timeout_s=setting.ready_timeout_s,
        gpu=setting.gpu,
        console=setting.console,
        until=until,
    )
    if code == drive.EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return read_probe(directory, setting.slo, ask.rate, time.monotonic() - began, setting.out)


def _load(setting: Setting, ask: Ask, number: int) -> drive.Load:
    seed = None if setting.load.seed is None else setting.load.seed + number
    load = replace(
        setting.load, rate_per_s=ask.rate, duration_s=ask.duration_s, warmup_s=ask.warmup_s,
        seed=seed,
    )  # fmt: skip
    if setting.over == "concurrency":
        return replace(load, arrival=f"concurrency:{int(ask.rate)}")
    return load


def read_probe(directory: Path, slo: Slo, rate: float, spent_s: float, out: Path) -> Probe:
    """What a run directory says under these objectives; its verdict.json is written."""
    verdict = judge(directory, slo)
    write_verdict(directory, verdict)
    found = read_evidence(directory)
    decisions, _ = decisions_of(slo.objectives, found.measured, found.beside)
    pairs = [
        (objective, decision)
        for objective, decision in zip(slo.objectives, decisions, strict=True)
        if objective.severity == "gate"
    ]
    counts, stopped = found.run.counts, found.run.stopped
    return Probe(
        rate=rate,
        result=verdict.result,
        requests=max(counts.sent, counts.completed + counts.failed),
        spent_s=spent_s,
        evidence=tuple(_evidence(pairs)),
        fails=_outright(pairs),
        stopped=stopped is not None,
        why=verdict.sentence,
        directory=str(directory.relative_to(out)),
        latencies=_latencies(verdict),
        tokens_per_s=_tokens_per_s(found.measured),
    )


def _evidence(pairs: list[tuple[Objective, Decision]]) -> Iterator[Evidence]:
    for objective, decision in pairs:
        if objective.allowed is None or not decision.n or not decision.requests:
            continue
        worth = decision.requests / decision.inflation
        over = decision.over / decision.n * worth
        yield Evidence(
            objective.label, over, worth, objective.allowed, objective.confidence, decision.far
        )


def _outright(pairs: list[tuple[Objective, Decision]]) -> str | None:
    """The objective that is missed and is none of a share, so that nothing can be added up."""
    for objective, decision in pairs:
        if objective.allowed is None and decision.outcome is Result.FAIL:
            return objective.label
    return None


def _latencies(verdict: Verdict) -> dict[str, float | None]:
    lines = (row for row in verdict.rows if row.unit == "s")
    return {
        f"{row.objective} of {row.scenario}" if row.scenario != "all" else row.objective: (
            row.measured
        )
        for row in lines
    }


def _tokens_per_s(measured: Measurements) -> float | None:
    tokens = measured.tokens_per_second()
    return float(tokens.mean()) if len(tokens) else None


def knee_of(out: Path) -> Callable[[Probe], Knee | None]:
    """A function that says what bounded the server in a probe; None where nothing was measured."""

    def look(found: Probe) -> Knee | None:
        if not found.directory:
            return None
        try:
            diagnosis = causes(out / found.directory).diagnosis
        except rundir.RunDirError:
            return None
        if diagnosis.word == NOT_MEASURED:
            return None
        return Knee(
            diagnosis.word, diagnosis.sentence, diagnosis.next_step, found.rate, found.directory
        )

    return look
