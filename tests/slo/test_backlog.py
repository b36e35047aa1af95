"""A server that does not keep up: its run has no steady state, and is a miss as counted."""

from pathlib import Path

import numpy as np
import pytest

from slo.backlog import grows
from slo.judge import judge
from slo.slofile import parse_slo
from slo.verdict import Result
from tests.slo.make_run import make_run

WINDOW_S = (0.0, 40.0)


def fluid(offered_per_s: float, served_per_s: float) -> tuple[np.ndarray, np.ndarray]:
    """When requests are due, and when a queue that starts empty has served each."""
    due = np.arange(0, WINDOW_S[1], 1 / offered_per_s)
    served = np.maximum.accumulate(due - np.arange(len(due)) / served_per_s)
    return due, served + np.arange(1, len(due) + 1) / served_per_s


@pytest.mark.parametrize(("served_per_s", "behind"), [(4.0, True), (7.0, True), (9.0, False)])
def test_a_backlog_grows_where_less_is_served_than_offered(
    served_per_s: float, behind: bool
) -> None:
    assert grows(*fluid(8.0, served_per_s), WINDOW_S) is behind


def test_a_stable_queue_at_high_load_seldom_looks_as_if_it_fell_behind() -> None:
    rng, alarms, runs = np.random.default_rng(3), 0, 400
    for _ in range(runs):
        due = np.cumsum(rng.exponential(1 / 8, 320))
        service = rng.exponential(0.9 / 8, 320)
        ended = np.empty(320)
        free_at = 0.0
        for i in range(320):
            free_at = ended[i] = max(free_at, due[i]) + service[i]
        alarms += grows(due, ended, (0.0, float(due[-1])))
    assert alarms <= 0.05 * runs


def test_a_hopelessly_overloaded_server_fails(tmp_path: Path) -> None:
    due, ended = fluid(8.0, 4.0)
    waits = (ended - due).tolist()
    run = make_run(tmp_path / "run", ttft_s=waits, e2e_s=waits, rate_per_s=8.0)
    slo = parse_slo(
        "version: 1\nservice: x\nobjectives:\n  - {metric: ttft, percentile: 90, max: 420ms}\n",
        "slo.yaml",
    )
    verdict = judge(run, slo)
    assert verdict.rows[0].outcome is Result.FAIL
    assert "does not keep up" in verdict.rows[0].why
