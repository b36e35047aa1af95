"""One objective against one run: what was measured, its interval, and what that proves."""

import numpy as np
from scipy.stats import t as student

from slo.measurements import Measurements
from slo.objectives import LATENCIES, Objective
from slo.quantile_test import Decision, decide_percentile, decide_share
from slo.verdict import Result

_BATCHES = 10


def decide(objective: Objective, measured: Measurements, *, from_sent: bool = False) -> Decision:
    """Decide one objective alone; `from_sent` takes latencies from sent where there is one."""
    if objective.metric in LATENCIES:
        assert objective.percentile is not None
        metric = objective.metric
        if from_sent and has_sent_view(metric):
            metric = f"{metric}_from_sent"
        return decide_percentile(
            measured.sample(metric, objective.scenario),
            objective.percentile,
            objective.limit,
            objective.confidence,
            objective.min_samples,
        )
    if objective.metric == "error_rate":
        certain, possible = measured.failed(objective.scenario)
        n = int(measured.judged(objective.scenario).sum())
        return decide_share(
            certain, possible, n, objective.limit, objective.confidence, objective.min_samples
        )
    if objective.metric == "achieved_rate":
        return _achieved_rate(objective, measured)
    return _tokens_per_s(objective, measured)


def has_sent_view(metric: str) -> bool:
    """Whether a latency counts from due, so that the generator's lateness is in it."""
    return metric in ("ttft", "ttfat", "e2e")


def _achieved_rate(objective: Objective, measured: Measurements) -> Decision:
    """Requests sent: counted, not estimated, so that there is no interval."""
    columns = measured.columns
    due = columns.where("phase", "measured")
    if objective.scenario != "all":
        due &= columns.where("scenario", objective.scenario)
    n, sent = int(due.sum()), int(np.isfinite(columns.numbers["sent_s"][due]).sum())
    start, end = measured.window_s
    if not n or end <= start:
        return Decision(Result.INCONCLUSIVE, None, None, None, n, 0, n, 1.0, None)
    value = sent / n if objective.unit == "1" else sent / (end - start)
    met = value >= objective.limit
    outcome = Result.PASS if met else Result.FAIL
    if n < objective.min_samples:
        outcome = Result.INCONCLUSIVE
    return Decision(outcome, value, value, value, n, n - sent, n, 1.0 if met else 0.0, None)


def _tokens_per_s(objective: Objective, measured: Measurements) -> Decision:
    """Mean over the window, with Student's t over batches of seconds: neighbours are alike."""
    tokens = measured.tokens_per_second()
    n = int(measured.judged().sum())
    length = len(tokens) // _BATCHES
    if not length or not n:
        return Decision(Result.INCONCLUSIVE, None, None, None, n, 0, n, 1.0, None)
    means = tokens[: length * _BATCHES].reshape(_BATCHES, length).mean(axis=1)
    mean, error = float(means.mean()), float(means.std(ddof=1)) / _BATCHES**0.5
    reach = float(student.ppf(objective.confidence, _BATCHES - 1)) * error
    distance = (mean - objective.limit) / error if error else float(np.sign(mean - objective.limit))
    p_missed = float(student.cdf(distance, _BATCHES - 1)) if error else float(distance >= 0)
    outcome = Result.INCONCLUSIVE
    if n >= objective.min_samples:
        if mean - reach >= objective.limit:
            outcome = Result.PASS
        elif mean + reach < objective.limit:
            outcome = Result.FAIL
    return Decision(outcome, mean, max(mean - reach, 0.0), mean + reach, n, 0, n, p_missed, None)
