"""One objective against one run: what was measured, its interval, and what that proves."""

from dataclasses import replace

import numpy as np

from slo.beside import NOTHING, Beside
from slo.latencies import Mask
from slo.mean_test import decide_change, decide_resource, decide_tokens
from slo.measurements import Measurements
from slo.objectives import LATENCIES, Objective
from slo.quantile_test import Decision, decide_percentile, decide_share, undecided
from slo.resources import RESOURCE_METRICS
from slo.verdict import Result


def decide(
    objective: Objective,
    measured: Measurements,
    beside: Beside = NOTHING,
    *,
    from_sent: bool = False,
) -> Decision:
    """Decide one objective alone; `from_sent` takes latencies from sent where there is one."""
    metric = objective.metric
    if objective.relative:
        return decide_change(objective, measured, beside.baseline)
    if metric in LATENCIES:
        assert objective.percentile is not None
        if from_sent and has_sent_view(metric):
            metric = f"{metric}_from_sent"
        return decide_percentile(
            measured.sample(metric, objective.scenario),
            objective.percentile,
            objective.limit,
            objective.confidence,
            objective.min_samples,
        )
    if metric in RESOURCE_METRICS:
        return decide_resource(objective, measured, beside)
    if metric == "error_rate":
        certain, possible = measured.failed_masks()
        return _share(objective, measured, measured.judged(objective.scenario), certain, possible)
    if metric == "goodput":
        return _goodput(objective, measured, from_sent=from_sent)
    if metric == "accuracy":
        return _accuracy(objective, measured, beside.grades)
    if metric == "achieved_rate":
        return _achieved_rate(objective, measured)
    return decide_tokens(objective, measured)


def has_sent_view(metric: str) -> bool:
    """Whether a latency counts from due, so that the generator's lateness is in it."""
    return metric in ("ttft", "ttfat", "e2e", "goodput")


def _share(
    objective: Objective, measured: Measurements, of: Mask, certain: Mask, possible: Mask
) -> Decision:
    """Test a share of bad requests; of what is wanted instead, value and interval are turned."""
    assert objective.allowed is not None
    decision = decide_share(
        int((of & certain).sum()),
        int((of & possible).sum()),
        int(of.sum()),
        objective.allowed,
        objective.confidence,
        objective.min_samples,
        measured.share_inflation(of, possible) if of.any() else 1.0,
    )
    if objective.bound == "max" or decision.measured is None:
        return decision
    low, high = decision.low, decision.high
    assert low is not None
    assert high is not None
    return replace(decision, measured=1 - decision.measured, low=1 - high, high=1 - low)


def _goodput(objective: Objective, measured: Measurements, *, from_sent: bool) -> Decision:
    """A request that failed, or that misses one of the named latencies, is none of the good."""
    judged = measured.judged(objective.scenario)
    certain, possible = measured.failed_masks()
    for part in objective.parts:
        metric = part.metric
        if from_sent and has_sent_view(metric):
            metric = f"{metric}_from_sent"
        at_least, at_most = measured.bounds(metric)  # nan, not applicable, is over no limit
        if judged.any() and np.isnan(at_most[judged]).all():
            return undecided(0, f"No judged request has a {part.metric}: goodput is not known.")
        certain, possible = certain | (at_least > part.limit), possible | (at_most > part.limit)
    return _share(objective, measured, judged, certain, possible)


def _accuracy(
    objective: Objective, measured: Measurements, grades: dict[int, bool] | None
) -> Decision:
    """Of the graded answers; a request that failed gave none, and is no right one."""
    if grades is None:
        return undecided(0, "Not graded: the run has no grades.jsonl.")
    seq = measured.columns.numbers["seq"].astype(np.int64)
    graded = np.isin(seq, list(grades)) & measured.judged(objective.scenario)
    wrong = np.isin(seq, [one for one, right in grades.items() if not right])
    if not graded.any():
        return undecided(0, "Not graded: grades.jsonl has none of the judged requests.")
    return _share(objective, measured, graded, wrong, wrong)


def _achieved_rate(objective: Objective, measured: Measurements) -> Decision:
    """Requests sent: counted, not estimated, so that there is no interval.

    Where all were sent, and there were too few, the load was too small and no server at fault.
    """
    columns = measured.columns
    due = columns.where("phase", "measured")
    if objective.scenario != "all":
        due &= columns.where("scenario", objective.scenario)
    n, sent = int(due.sum()), int(np.isfinite(columns.numbers["sent_s"][due]).sum())
    start, end = measured.window_s
    if not n or end <= start:
        return undecided(n)
    value = sent / n if objective.unit == "1" else sent / (end - start)
    met = value >= objective.limit
    outcome = Result.PASS if met else Result.FAIL
    if n < objective.min_samples or (sent == n and not met):
        outcome = Result.INCONCLUSIVE
    return Decision(outcome, value, None, None, n, n - sent, 1.0 if met else 0.0, requests=n)
