"""A decision in words: one line of the verdict, with why and what to do next."""

from slo.measurements import Measurements
from slo.objectives import LATENCIES, Objective, label
from slo.quantile_test import Decision
from slo.quantities import show, show_s
from slo.verdict import Check, Result, Row


def row(
    objective: Objective, decision: Decision, measured: Measurements, *, by_holm: bool = False
) -> Row:
    """One line of the verdict; `by_holm` where a miss does not stand beside the others."""
    censored = None
    if objective.metric in LATENCIES and decision.measured is None and decision.n:
        censored = f">{measured.run.timeout_s:g}s"
    why, next_step = _words(objective, decision, measured)
    if by_holm:
        why += " Alone that would be missed; beside the other objectives (Holm) it may be chance."
    sign = "<=" if objective.bound == "max" else ">="
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
        limit=f"{sign} {objective.limit_text}",
        limit_value=objective.limit,
        confidence=objective.confidence,
        severity=objective.severity,
        outcome=decision.outcome,
        why=why,
        next_step=next_step,
    )


def void_of(row: Row, checks: tuple[Check, ...]) -> Check | None:
    """The first failed check that makes this line unusable."""
    names = {"*", row.metric, label(row.objective, row.scenario)}
    return next((c for c in checks if c.outcome == "void" and names & set(c.voids)), None)


def _words(objective: Objective, decision: Decision, measured: Measurements) -> tuple[str, str]:
    if not decision.n:
        return _nothing(objective, measured)
    if decision.n < objective.min_samples:
        more = objective.min_samples - decision.n
        why = f"{decision.n:,} are fewer than min_samples: {objective.min_samples:,}."
        return why, _run_more(more, measured)
    if objective.metric == "achieved_rate":
        sent = decision.n - decision.over
        why = f"{sent:,} of {decision.n:,} requests were sent: counted, not estimated."
        missed = decision.outcome is Result.FAIL
        return why, "See which failures kept requests from being sent." if missed else ""
    if objective.metric == "output_tokens_per_s":
        return _tokens(objective, decision)
    return _share(objective, decision, measured)


def _nothing(objective: Objective, measured: Measurements) -> tuple[str, str]:
    if objective.metric == "ttfat" and measured.run.reasoning == "none":
        return "Not applicable: the model marks no reasoning.", "Judge ttft instead."
    who = "request" if objective.scenario == "all" else f"request of {objective.scenario}"
    return f"No {who} has a {objective.metric}.", "Run a load that has one."


def _tokens(objective: Objective, decision: Decision) -> tuple[str, str]:
    if decision.measured is None or decision.low is None or decision.high is None:
        return "The measured window is shorter than 10 s.", "Run longer."
    low, high = show(decision.low, objective.unit), show(decision.high, objective.unit)
    sure = f"with {_percent(objective.confidence)} confidence"
    if decision.outcome is Result.PASS:
        return f"At least {low} {sure}.", ""
    if decision.outcome is Result.FAIL:
        return f"At most {high} {sure}.", "Find what bounds the decoding speed."
    return f"Between {low} and {high}: that decides nothing.", "Run longer."


def _share(objective: Objective, decision: Decision, measured: Measurements) -> tuple[str, str]:
    if objective.percentile is None:
        allowed, what, did = objective.limit, "may fail", "failed"
    else:
        allowed = 1 - objective.percentile / 100
        what = f"may take longer than {objective.limit_text}"
        did = "did, failures included" if measured.failed(objective.scenario)[1] else "did"
    things = "gaps" if objective.metric == "itl" else "requests"
    seen = f"{decision.over:,} of {decision.n:,} {did} ({_percent(decision.over / decision.n)})"
    why = f"At most {_percent(allowed)} of {things} {what}; {seen}"
    sure = f"with {_percent(objective.confidence)} confidence"
    if decision.outcome is Result.PASS:
        return f"{why}: met {sure}.", ""
    if decision.outcome is Result.FAIL:
        return f"{why}: missed {sure}.", _after_a_miss(objective, decision, measured)
    why = f"{why}: neither met nor missed {sure}."
    if decision.more is None:
        return why, "The share lies on the limit: no number of requests would decide. Move one."
    return why, _run_more(decision.more, measured)


def _after_a_miss(objective: Objective, decision: Decision, measured: Measurements) -> str:
    certain, failed = measured.failed(objective.scenario)
    if certain and (objective.percentile is None or 2 * failed > decision.over):
        return f"Look at the failures first: {failed:,} requests failed."
    return "Look at the report for when it was slow; lower the rate, or give the server more."


def _run_more(more: int, measured: Measurements) -> str:
    start, end = measured.window_s
    rate = float(measured.judged().sum()) / (end - start) if end > start else 0.0
    longer = f" ({show_s(more / rate)} longer at this rate)" if rate else ""
    return f"Run about {max(more, 1):,} more requests{longer}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
