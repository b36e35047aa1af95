"""A server that stands still now and then: what is reported is what the plan says it must be."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from slo.rundir import read_records, read_run
from tests.benchmarks.load_clients import ROOT
from tests.benchmarks.truth import truth_server

TTFT_MS = 50.0


def by_the_plan_ms(due_s: float, stall_s: float, every_s: float) -> float:
    """Time to the first token of a request that is due so long after the server's start."""
    into_s = due_s % every_s if due_s >= every_s else every_s
    if into_s < stall_s:  # read only when the server goes on, and answered after that
        return (stall_s - into_s) * 1e3 + TTFT_MS
    token_s = due_s + TTFT_MS / 1e3
    into_s = token_s % every_s if token_s >= every_s else every_s
    return TTFT_MS + ((stall_s - into_s) * 1e3 if into_s < stall_s else 0.0)


@pytest.mark.parametrize(
    ("stall_s", "every_s", "rate", "seconds"), [(1.0, 5.0, 40, 15), (2.0, 20.0, 20, 60)]
)
def test_stalls_are_in_the_percentiles_as_the_plan_has_them(
    tmp_path: Path, stall_s: float, every_s: float, rate: int, seconds: int
) -> None:
    stall = ("--stall-ms", str(stall_s * 1e3), "--every-ms", str(every_s * 1e3), "--tokens", "4")
    out = tmp_path / "run"
    with truth_server(tmp_path / "log", *stall) as truth:
        subprocess.run(
            [sys.executable, "-m", "locust", "-f", ROOT / "loadtests" / "locustfile.py",
             "--headless", "--only-summary", "--host", truth.url, "--out", out, "--rate",
             f"{rate}/s", "--duration", f"{seconds}s", "--warmup", "0s", "--arrival", "constant",
             "--max-tokens", "4"],
            check=True, capture_output=True, cwd=ROOT,
        )  # fmt: skip
        shift_s = (read_run(out).t0_mono_ns - truth.started_ns) / 1e9
    records = list(read_records(out))
    assert len(records) == seconds * rate
    assert {record.error for record in records} == {None}
    found = [(r.first_token_s - r.due_s) * 1e3 for r in records]  # type: ignore[operator]
    planned = [by_the_plan_ms(shift_s + record.due_s, stall_s, every_s) for record in records]
    for percent in (50, 90, 95, 99):  # at 80 lies the edge, where a millisecond is a lot
        wanted = np.percentile(planned, percent, method="inverted_cdf")
        seen = np.percentile(found, percent, method="inverted_cdf")
        print(f"P{percent}: {seen:.1f} ms, by the plan {wanted:.1f} ms")
        assert seen == pytest.approx(wanted, rel=0.03, abs=3.0), percent
    assert np.percentile(planned, 95) > 500
