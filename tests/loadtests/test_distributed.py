"""A master and workers that are started apart, as on several machines; the web UI."""

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.loadtests.fault_server import fault_server
from tests.loadtests.locust_runs import (
    Ended,
    adds_up,
    ended,
    free_port,
    locust,
    wait_for_records,
)

AHEAD_S = 5000
ELSEWHERE = ("unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child")


def can_be_elsewhere() -> bool:
    try:
        tried = subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


@pytest.fixture(scope="module")
def faults() -> Iterator[str]:
    with fault_server() as (url, _):
        yield url


@pytest.fixture(scope="module")
def apart(faults: str, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A master, a worker beside it, one with a clock of its own, and a third too late.

    A time namespace is as good as another machine: its monotonic clock is 5,000 s ahead.
    """
    out, port = tmp_path_factory.mktemp("apart") / "run", free_port()
    master = ("--master", "--expect-workers", "2", "--master-bind-port", port)
    worker = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    options = ("--host", faults, "--api-path", "/ok", "--rate", "20/s", "--duration", "6s")
    with ExitStack() as stack:
        leader = stack.enter_context(
            locust(out, *master, *options, "--warmup", "0s", "--reasoning", "none")
        )
        stack.enter_context(locust(out, *worker))
        elsewhere = ELSEWHERE if can_be_elsewhere() else ()
        stack.enter_context(locust(out, *worker, before=elsewhere))
        wait_for_records(out, 2)
        stack.enter_context(locust(out, *worker))
        return ended(leader, out)


def test_a_master_and_workers_lose_nothing_and_a_late_one_is_named(apart: Ended) -> None:
    assert apart.code == 0, apart.stderr
    run = apart.run
    assert run.finished
    assert adds_up(run)
    assert Counter(r.worker for r in apart.records) == {w.index: w.records for w in run.workers}
    assert len(run.workers) == 2
    assert run.client is not None
    assert len(run.client.late_workers) == 1


@pytest.mark.skipif(not can_be_elsewhere(), reason="no time namespaces here")
def test_a_worker_with_another_clock_sends_when_it_is_due_on_ours(apart: Ended) -> None:
    offsets_s = sorted(worker.clock_offset_ns / 1e9 for worker in apart.run.workers)
    assert offsets_s[0] == 0
    assert offsets_s[1] == pytest.approx(AHEAD_S, abs=0.1)
    bounds_s = sorted(worker.clock_bound_ns / 1e9 for worker in apart.run.workers)
    assert 0 < bounds_s[1] < 0.1
    late_s = [r.sent_s - r.due_s for r in apart.records if r.sent_s is not None]
    assert len(late_s) == apart.run.counts.scheduled
    assert all(abs(late) < 1.0 for late in late_s)


def test_the_web_ui_shows_our_requests(faults: str, tmp_path: Path) -> None:
    port, out = free_port(), tmp_path / "run"
    options = ("--host", faults, "--api-path", "/ok", "--rate", "20/s", "--duration", "2s")
    web = ("--autostart", "--autoquit", "1", "--web-host", "127.0.0.1", "--web-port", port)
    with locust(out, *options, *web, "--reasoning", "none") as process:
        wait_for_records(out, 20)
        shown = stats(port)
        result = ended(process, out)
    rows = {row["name"]: row for row in shown["stats"]}
    assert rows["Aggregated"]["num_requests"] >= 15
    assert {"math", "code"} & set(rows)
    assert rows["Aggregated"]["num_failures"] == 0
    assert rows["Aggregated"]["avg_response_time"] > 10
    assert result.code == 0, result.stderr
    assert result.run.finished


def stats(port: str) -> dict[str, list[dict[str, float]]]:
    by = time.monotonic() + 10
    while time.monotonic() < by:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats/requests", timeout=5) as page:
            found: dict[str, list[dict[str, float]]] = json.load(page)
        if any(row["name"] == "Aggregated" and row["num_requests"] > 15 for row in found["stats"]):  # type: ignore[comparison-overlap]
            return found
        time.sleep(0.2)
    raise AssertionError(f"the web UI never showed them; {sys.version}")
