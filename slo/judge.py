"""From a run directory and a slo.yaml to a verdict."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from slo import calibration, load_checks, physics, repeat, steady, target_checks, validity
from slo.beside import NO_BASELINE, Baseline, Beside
from slo.causes import found_for
from slo.evidence import Evidence, read_evidence
from slo.measurements import Measurements
from slo.objective_test import decide, has_sent_view
from slo.objectives import EXACT, LATENCIES, Objective, Slo, label
from slo.quantile_test import Decision, holm, more_requests
from slo.quantities import show
from slo.record import Failure
from slo.rows import row, void_of
from slo.rundir import Run
from slo.verdict import Check, Result, Row, Verdict


def judge(directory: Path, slo: Slo, baseline: Baseline = NO_BASELINE) -> Verdict:
    """Judge one run under one slo.yaml; whatever spoils the run becomes INVALID, named.

    Raises:
        RunDirError: run.json cannot be read.
    """
    evidence = read_evidence(directory, baseline)
    measured = evidence.measured
    decisions, chance = decisions_of(slo.objectives, measured, evidence.beside)
    rows = [
        row(objective, decision, measured, by_holm=i in chance)
        for i, (objective, decision) in enumerate(zip(slo.objectives, decisions, strict=True))
    ]
    roofline = physics.roofline(evidence.run, measured.columns, found_for(directory, evidence.run))
    checks = (*_checks(evidence, slo, rows), roofline)
    rows = [
        _unless_void(line, checks, partial(repeat.advice, objective, decision, measured, slo))
        for line, objective, decision in zip(rows, slo.objectives, decisions, strict=True)
    ]
    result = _result(rows, checks)
    return Verdict(
        result=result,
        sentence=_sentence(result, rows, decisions, checks, evidence.run),
        service=slo.service,
        run_id=evidence.run.id,
        rows=tuple(rows),
        validity=checks,
        notes=tuple(_notes(rows, measured)),
    )


def decisions_of(
    objectives: Sequence[Objective], measured: Measurements, beside: Beside
) -> tuple[list[Decision], set[int]]:
    """Decide all objectives together, and which misses may be chance beside the others."""
    decisions = [decide(objective, measured, beside) for objective in objectives]
    chance = _maybe_chance(objectives, decisions)
    for i in chance:
        more = _more_beside_others(objectives[i], decisions[i], len(decisions))
        decisions[i] = replace(decisions[i], outcome=Result.INCONCLUSIVE, more=more)
    return decisions, chance


def _maybe_chance(objectives: Sequence[Objective], decisions: Sequence[Decision]) -> set[int]:
    """The gating objectives whose miss does not stand beside the others (Holm)."""
    tested = [
        i
        for i, objective in enumerate(objectives)
        if objective.severity == "gate" and objective.metric not in EXACT
    ]
    stands = holm(
        [decisions[i].p_missed for i in tested], [1 - objectives[i].confidence for i in tested]
    )
    return {
        i
        for i, sure in zip(tested, stands, strict=True)
        if not sure and decisions[i].outcome is Result.FAIL
    }


def _more_beside_others(objective: Objective, decision: Decision, tests: int) -> int | None:
    if objective.allowed is None:
        return None
    return more_requests(
        decision.over * decision.requests / decision.n,
        decision.requests,
        objective.allowed,
        1 - (1 - objective.confidence) / tests,
        inflation=decision.inflation,
    )


def _checks(evidence: Evidence, slo: Slo, rows: list[Row]) -> Iterator[Check]:
    run, measured = evidence.run, evidence.measured
    tightest = slo.tightest_s
    limit_s = None if tightest is None else tightest * slo.validity.lateness
    yield validity.files(evidence.unreadable)
    yield validity.imported(run)
    yield validity.finished(run)
    if not evidence.unreadable:  # else they would only repeat it
        yield validity.counts(run, measured)
        yield validity.schedule(run, evidence.schedule, measured)
        yield validity.workers(run, measured)
        yield load_checks.arrivals(run, evidence.schedule, measured.window_s, measured)
        yield validity.histograms(measured, evidence.intervals)
    yield validity.dropped(run, slo.validity.dropped)
    yield validity.judged(measured, slo)
    yield validity.length(measured, slo, rows)
    yield load_checks.load(run, measured, slo)
    yield from _generator(evidence, slo, rows, limit_s)
    yield steady.warm(steady.trend(measured), rows, (*LATENCIES, "goodput"))
    yield validity.clocks(run, limit_s)
    yield validity.timeout(run, slo)
    yield steady.clock(run, evidence.clock_s, slo.validity.clock_step_s)
    yield validity.tokens(measured, slo.validity.token_doubt)
    yield target_checks.cache(run, measured, slo.validity.cache_hits)
    yield target_checks.target(evidence.target, evidence.beside.server)


def _generator(
    evidence: Evidence, slo: Slo, rows: list[Row], limit_s: float | None
) -> Iterator[Check]:
    """Whether the generator kept up; nobody knows where only the moment of sending is told."""
    run, measured = evidence.run, evidence.measured
    if run.imported is not None and not run.imported.due_known:
        why = f"{run.imported.tool} does not say when requests were due."
        yield validity.unchecked("achieved rate", f">= {slo.validity.achieved_rate:.4g}", why)
        yield validity.unchecked("lateness", "-", why)
        return
    yield load_checks.achieved_rate(measured, slo.validity.achieved_rate)
    late = load_checks.lateness_p99_s(measured)
    turned: list[str] = []
    if late is not None and limit_s is not None and late > limit_s:
        turned = list(_missed_by_lateness(slo, rows, measured))
    yield load_checks.lateness(late, limit_s, turned)


def _missed_by_lateness(slo: Slo, rows: list[Row], measured: Measurements) -> Iterator[str]:
    for objective, line in zip(slo.objectives, rows, strict=True):
        if line.outcome is not Result.FAIL or not has_sent_view(objective.metric):
            continue
        if decide(objective, measured, from_sent=True).outcome is not Result.FAIL:
            yield objective.line


def _unless_void(line: Row, checks: tuple[Check, ...], again: Callable[[str], str]) -> Row:
    check = void_of(line, checks)
    if check is None:
        return line
    why = f"Cannot be judged ({check.check}): {check.why}"
    line = replace(line, outcome=Result.INVALID, why=why, next_step=again(check.check))
    if check.check == "origin":  # what stands there was made of nothing
        return replace(line, measured=None, low=None, high=None, censored=None)
    return line


def _result(rows: list[Row], checks: tuple[Check, ...]) -> Result:
    if any(check.outcome == "void" and "*" in check.voids for check in checks):
        return Result.INVALID
    outcomes = {line.outcome for line in rows if line.severity == "gate"}
    for result in (Result.INVALID, Result.FAIL, Result.INCONCLUSIVE):
        if result in outcomes:
            return result
    return Result.PASS


def _sentence(
    result: Result,
    rows: list[Row],
    decisions: list[Decision],
    checks: tuple[Check, ...],
    run: Run,
) -> str:
    gating = [
        (line, decision)
        for line, decision in zip(rows, decisions, strict=True)
        if line.severity == "gate"
    ]
    decisive = [(line, decision) for line, decision in gating if line.outcome is result]
    at = f"at {run.rate_per_s:g}/s"
    if result is Result.INVALID:
        whole = [check for check in checks if check.outcome == "void" and "*" in check.voids]
        check = whole[0] if whole else void_of(decisive[0][0], checks)
        assert check is not None
        return f"INVALID: the run cannot be judged: {check.check}: {check.why}"
    if result is Result.PASS:
        if not gating:
            return f"PASS: no objective gates; {len(rows)} only warn, {at}."
        return f"PASS: {_of(len(gating), len(gating))} met {at}."
    line, _ = decisive[0]
    if result is Result.INCONCLUSIVE:  # the one that needs most: with less, nothing is decided
        line, _ = max(decisive, key=lambda pair: math.inf if pair[1].more is None else pair[1].more)
    value = line.censored if line.measured is None else show(line.measured, line.unit)
    name = label(line.objective, line.scenario)
    shown = f"{name} is {value or 'not measured'}, asked is {line.limit}"
    if result is Result.FAIL:
        return f"FAIL: {_of(len(decisive), len(gating))} missed {at}: {shown}."
    undecided = _of(len(decisive), len(gating))
    return f"INCONCLUSIVE: {undecided} undecided {at}: {shown}. {line.next_step}"


def _of(some: int, total: int) -> str:
    """E.g. "the only objective is", "all 3 objectives are", "1 of 3 objectives is"."""
    if total == 1:
        return "the only objective is"
    many = f"all {total}" if some == total else f"{some} of {total}"
    return f"{many} objectives {'is' if some == 1 else 'are'}"


def _notes(rows: list[Row], measured: Measurements) -> Iterator[str]:
    for line in rows:
        if line.severity == "warn" and line.outcome is not Result.PASS:
            yield f"Warning only: {line.objective} ({line.limit}) is {line.outcome}. {line.why}"
    uncertain = [line for line in rows if line.effective_n and " p" in line.objective]
    if uncertain:
        least = min(uncertain, key=lambda line: line.effective_n or 0.0)
        said = calibration.in_words(least.objective, least.effective_n or 0.0)
        if said:
            yield said
    columns = measured.columns
    cancelled = int((measured.judged() & columns.where("error", Failure.CANCELLED)).sum())
    if cancelled:
        yield (
            f"{cancelled} requests were in flight when the run was stopped: a PASS counts them as "
            "over every limit, a FAIL only by what they took until then."
        )
    dropped = int(columns.where("error", Failure.DROPPED).sum())
    if dropped:
        yield f"{dropped} arrivals were dropped by the generator and are not judged."
