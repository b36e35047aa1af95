"""A server that stands still now and then: what is reported is what the plan says it must be."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from slo.rundir import read_records, read_run
from tests.benchmarks.load_clients import ROOT
from tests.benchmarks.truth import truth_server

TTFT_MS, STALL_S, EVERY_S, RATE = 50.0, 1.0, 5.0, 40


def by_the_plan_ms(due_s: float) -> float:
    """Time to the first token of a request that is due so long after the server's start."""
    into_s = due_s % EVERY_S if due_s >= EVERY_S else EVERY_S
    if into_s < STALL_S:  # read only when the server goes on, and answered after that
        return (STALL_S - into_s) * 1e3 + TTFT_MS
    token_s = due_s + TTFT_MS / 1e3
    into_s = token_s % EVERY_S if token_s >= EVERY_S else EVERY_S
    return TTFT_MS + ((STALL_S - into_s) * 1e3 if into_s < STALL_S else 0.0)


def test_stalls_are_in_the_percentiles_as_the_plan_has_them(tmp_path: Path) -> None:
    stall = ("--stall-ms", str(STALL_S * 1e3), "--every-ms", str(EVERY_S * 1e3), "--tokens", "4")
    out = tmp_path / "run"
    with truth_server(tmp_path / "log", *stall) as truth:
        subprocess.run(
            [sys.executable, "-m", "locust", "-f", ROOT / "loadtests" / "locustfile.py",
             "--headless", "--only-summary", "--host", truth.url, "--out", out, "--rate",
             f"{RATE}/s", "--duration", "15s", "--warmup", "0s", "--arrival", "constant",
             "--max-tokens", "4"],
            check=True, capture_output=True, cwd=ROOT,
        )  # fmt: skip
        shift_s = (read_run(out).t0_mono_ns - truth.started_ns) / 1e9
    records = list(read_records(out))
    assert len(records) == 15 * RATE
    assert {record.error for record in records} == {None}
    found = [(r.first_token_s - r.due_s) * 1e3 for r in records]  # type: ignore[operator]
    planned = [by_the_plan_ms(shift_s + record.due_s) for record in records]
    for percent in (50, 90, 95, 99):  # at 80 lies the edge, where a millisecond is a lot
        wanted = np.percentile(planned, percent, method="inverted_cdf")
        seen = np.percentile(found, percent, method="inverted_cdf")
        assert seen == pytest.approx(wanted, rel=0.03, abs=3.0), percent
    assert np.percentile(planned, 95) > 500
