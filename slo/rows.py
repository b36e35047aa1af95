"""A decision in words: one line of the verdict, with why and what to do next."""

from slo.measurements import Measurements
from slo.objectives import EXACT, LATENCIES, Objective, label, line_of
from slo.quantile_test import Decision
from slo.quantities import show, show_s
from slo.verdict import Check, Result, Row


def row(
    objective: Objective, decision: Decision, measured: Measurements, *, by_holm: bool = False
) -> Row:
    """One line of the verdict; `by_holm` where a miss does not stand beside the others."""
    censored = None
    latency = objective.metric in LATENCIES and not objective.relative
    if latency and decision.measured is None and decision.n:
        censored = f">{measured.run.timeout_s:g}s"
    why, next_step = _words(objective, decision, measured)
    if by_holm:
        why += " Alone that would be missed; beside the other objectives (Holm) it may be chance."
    return Row(
        objective=objective.name,
        metric=objective.metric,
        scenario=objective.scenario,
        unit=objective.unit,
        measured=decision.measured,
        low=decision.low,
        high=decision.high,
        censored=censored,
        n=decision.n,
        limit=objective.bounded,
        limit_value=objective.limit,
        confidence=objective.confidence,
        severity=objective.severity,
        outcome=decision.outcome,
        why=why,
        next_step=next_step,
        effective_n=_effective_n(objective, decision),
    )


def _effective_n(objective: Objective, decision: Decision) -> float | None:
    if objective.allowed is None or not decision.requests:
        return None
    return round(decision.requests / decision.inflation, 1)


def line(row: Row) -> str:
    """Which line it is; `Objective.line` is the same."""
    return line_of(label(row.objective, row.scenario), row.limit, row.severity)


def void_of(row: Row, checks: tuple[Check, ...]) -> Check | None:
    """The first failed check that makes this line unusable."""
    names = {"*", row.metric, line(row)}
    return next((c for c in checks if c.outcome == "void" and names & set(c.voids)), None)


def _words(objective: Objective, decision: Decision, measured: Measurements) -> tuple[str, str]:
    if decision.nothing is not None:
        return decision.nothing, _after_nothing(objective)
    if not decision.n:
        return _nothing(objective, measured)
    if decision.n < objective.min_samples:
        more = objective.min_samples - decision.n
        why = f"{decision.n:,} are fewer than min_samples: {objective.min_samples:,}."
        return why, _run_more(more, decision.n, measured)
    if objective.metric == "achieved_rate":
        sent = decision.n - decision.over
        why = f"{sent:,} of {decision.n:,} requests were sent: counted, not estimated."
        if decision.outcome is Result.INCONCLUSIVE:
            return why, "The load offered fewer than the limit asks for: offer more."
        missed = decision.outcome is Result.FAIL
        return why, "See which failures kept requests from being sent." if missed else ""
    if objective.allowed is None:
        return _interval(objective, decision)
    return _share(objective, decision, measured)


def _after_nothing(objective: Objective) -> str:
    if objective.relative:
        return "Name a baseline that passed: slo baseline set NAME RUN."
    if objective.metric == "accuracy":
        return "Keep answers with --store-answers, and grade them."
    if objective.metric.startswith("gpu_"):
        return "Run with --sidecar on a machine with a GPU."
    if objective.metric == "goodput":
        return "Ask for latencies that its requests have."
    return "Run longer." if objective.metric == "output_tokens_per_s" else "Offer /metrics."


def _nothing(objective: Objective, measured: Measurements) -> tuple[str, str]:
    if objective.metric == "ttfat" and measured.run.reasoning == "none":
        return "Not applicable: the model marks no reasoning.", "Judge ttft instead."
    who = "request" if objective.scenario == "all" else f"request of {objective.scenario}"
    return f"No {who} has a {objective.metric}.", "Run a load that has one."


def _interval(objective: Objective, decision: Decision) -> tuple[str, str]:
    when = "See the report for when it changed."
    if objective.metric in EXACT:
        assert decision.measured is not None
        top, missed = show(decision.measured, objective.unit), decision.outcome is Result.FAIL
        return f"{top} is the highest of {decision.n:,} samples.", when if missed else ""
    assert decision.low is not None
    assert decision.high is not None
    low, high = show(decision.low, objective.unit), show(decision.high, objective.unit)
    sure = f"with {_percent(objective.confidence)} confidence"
    end = f"At most {high}" if objective.bound == "max" else f"At least {low}"
    if decision.outcome is Result.PASS:
        return f"{end} {sure}.", ""
    end = f"At least {low}" if objective.bound == "max" else f"At most {high}"
    if decision.outcome is Result.FAIL:
        return f"{end} {sure}.", when
    return f"Between {low} and {high}: that decides nothing.", "Run longer."


def _share(objective: Objective, decision: Decision, measured: Measurements) -> tuple[str, str]:
    assert objective.allowed is not None
    may, did = _bad(objective, measured)
    things = "gaps" if objective.metric == "itl" else "requests"
    seen = f"{decision.over:,} of {decision.n:,} {did} ({_percent(decision.over / decision.n)})"
    why = f"At most {_percent(objective.allowed)} of {things} {may}; {seen}"
    if decision.inflation > 1.05:
        worth = round(decision.requests / decision.inflation)
        count = "one request" if worth <= 1 else f"{worth:,} requests"
        why += f"; neighbours are alike, so that they count as {count}"
        why += ", but the limit lies far beyond their spread" if decision.far else ""
    sure = f"with {_percent(objective.confidence)} confidence"
    if decision.outcome is Result.PASS:
        return f"{why}: met {sure}.", ""
    if decision.outcome is Result.FAIL:
        if decision.backlog:
            why += "; the backlog grew all through the run: the server does not keep up"
        return f"{why}: missed {sure}.", _after_a_miss(objective, decision, measured)
    why = f"{why}: neither met nor missed {sure}."
    if decision.more is None:
        return why, "The share lies on the limit: no number of requests would decide. Move one."
    return why, _run_more(decision.more, decision.requests, measured)


def _bad(objective: Objective, measured: Measurements) -> tuple[str, str]:
    """What a request may do in so many cases, and how many did."""
    failures = ", failures included" if measured.failed(objective.scenario)[1] else ""
    if objective.percentile is not None:
        return f"may take longer than {objective.limit_text}", f"did{failures}"
    if objective.metric == "goodput":
        return "may miss one of its latencies", f"did{failures}"
    if objective.metric == "accuracy":
        return "may be answered wrongly", "were"
    return "may fail", "failed"


def _after_a_miss(objective: Objective, decision: Decision, measured: Measurements) -> str:
    certain, failed = measured.failed(objective.scenario)
    if objective.metric == "accuracy":
        return "Look at the wrong answers in answers.jsonl."
    if certain and (objective.metric == "error_rate" or 2 * failed > decision.over):
        return f"Look at the failures first: {failed:,} requests failed."
    return "Look at the report for when it was slow; lower the rate, or give the server more."


def _run_more(more: int, came: int, measured: Measurements) -> str:
    """So many more than the `came` ones of the run."""
    start, end = measured.window_s
    rate = came / (end - start) if end > start else 0.0
    longer = f" ({show_s(more / rate)} longer at this rate)" if rate else ""
    return f"Run about {max(more, 1):,} more requests{longer}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
