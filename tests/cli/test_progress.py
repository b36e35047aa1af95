"""The live view, folded from a run directory that grows."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from slo import progress, rundir
from slo.progress import Progress, Tail
from slo.record import Failure
from slo.rundir import read_run
from tests.slo.make_run import make_run


def followed(directory: Path) -> Progress:
    reading = Progress(Tail(directory / rundir.REQUESTS))
    reading.update(directory)
    return reading


def test_a_line_is_read_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.lines() == [b"one"]
        assert tail.lines() == []
        file.write(b"o\nthree\n")
        assert tail.lines() == [b"two", b"three"]


def test_before_the_run_is_written_nothing_is_known(tmp_path: Path) -> None:
    assert followed(tmp_path).at(1.0) is None


def test_percentiles_rates_and_lateness_are_those_of_the_records(tmp_path: Path) -> None:
    # 200 requests at 10/s; TTFT 1 .. 200 ms, so that P50 is 100 ms and P95 is 190 ms.
    make_run(tmp_path, [i / 1000 for i in range(1, 201)], late_s=0.003)
    snapshot = followed(tmp_path).at(19.5)
    assert snapshot is not None
    p50, p95 = snapshot.whole["TTFT"]
    assert p50 is not None
    assert p95 is not None
    assert (round(p50, 6), round(p95, 6)) == (0.100, 0.190)
    assert snapshot.ended == snapshot.scheduled == 200
    assert 9.8 <= snapshot.offered_per_s <= 10.2
    assert 9.8 <= snapshot.achieved_per_s <= 10.2
    assert snapshot.lateness_p99_s is not None
    assert round(snapshot.lateness_p99_s, 6) == 0.003
    assert snapshot.errors == {}


def test_a_failed_request_is_over_every_percentile_that_reaches_it(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1] * 100, failures={99: Failure.HTTP_STATUS, 98: Failure.RESET})
    snapshot = followed(tmp_path).at(9.9)
    assert snapshot is not None
    assert snapshot.errors == {"http_status": 1, "reset": 1}
    assert snapshot.in_flight >= 0
    directory = tmp_path / "worse"
    make_run(directory, [0.1] * 100, failures=dict.fromkeys(range(94, 100), Failure.RESET))
    worse = followed(directory).at(9.9)
    assert worse is not None
    assert worse.whole["TTFT"][1] == float("inf")
    assert "failed" in progress.line(worse)
    assert "reset 6" in progress.line(worse)


def test_arrivals_that_have_not_ended_are_in_flight(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1] * 100)  # each ends 0.5 s after it is due
    lines = (tmp_path / rundir.REQUESTS).read_text().splitlines(keepends=True)
    (tmp_path / rundir.REQUESTS).write_text("".join(lines[:40]))
    snapshot = followed(tmp_path).at(8.0)  # due until 6.5 s: 66 arrivals
    assert snapshot is not None
    assert snapshot.in_flight == 66 - 40


def test_the_offered_rate_does_not_look_ahead(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1] * 100)
    snapshot = followed(tmp_path).at(progress.KNOWN_AFTER_S + 2.0)
    assert snapshot is not None
    assert 9.5 <= snapshot.offered_per_s <= 10.5


def test_a_line_that_is_no_record_does_not_end_the_view(tmp_path: Path) -> None:
    make_run(tmp_path, [0.1] * 3)
    with (tmp_path / rundir.REQUESTS).open("a") as file:
        file.write(json.dumps({"seq": "x"}) + "\n")
    snapshot = followed(tmp_path).at(1.0)
    assert snapshot is not None
    assert snapshot.ended == 3


def seconds_after_the_start(
    seconds: float, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = read_run(directory).t0_mono_ns + round(seconds * 1e9)
    monkeypatch.setattr(progress.time, "monotonic_ns", lambda: now_ns)


def test_without_a_terminal_the_view_is_plain_lines_with_one_every_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, [0.1] * 10)
    seconds_after_the_start(10.5, tmp_path, monkeypatch)
    out = io.StringIO()
    with progress.view(tmp_path, Console(file=out)) as refresh:
        refresh()
        refresh()
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_view_is_a_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, [0.1] * 100)
    seconds_after_the_start(9.9, tmp_path, monkeypatch)
    out = io.StringIO()
    with progress.view(tmp_path, Console(file=out, force_terminal=True, width=100)) as refresh:
        refresh()
    for part in ("offered", "in flight", "TTFT P50 / P95", "100 ms / 100 ms", "late P99"):
        assert part in out.getvalue()
