"""What is counted and not estimated: it is exact, and no interval is printed for it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import reports.html
import reports.markdown
import reports.terminal
from reports import interval, words
from slo.judge import judge
from slo.record import Failure
from slo.rundir import read_run
from slo.slofile import parse_slo
from slo.summarise import summarise
from slo.verdict import Result
from tests.slo.make_logs import write_gpu
from tests.slo.make_run import make_run

SLO = """\
version: 1
service: tiny
objectives:
  - {metric: achieved_rate, min: 95%}
  - {metric: achieved_rate, min: 9/s}
  - {metric: gpu_power_max, max: 900W}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    held = dict.fromkeys(range(0, 300, 10), Failure.IN_FLIGHT_CAP)
    directory = make_run(tmp_path / "run", [0.1] * 300, failures=held)
    write_gpu(directory, power_w=lambda second: 300.0)
    return directory


def test_a_count_has_a_value_and_no_ends(run: Path) -> None:
    share, rate, power = judge(run, parse_slo(SLO)).rows
    assert [row.outcome for row in (share, rate, power)] == [Result.FAIL, Result.PASS, Result.PASS]
    assert (share.measured, rate.measured) == (0.9, 9.0)
    assert share.why == "270 of 300 requests were sent: counted, not estimated."
    assert "is the highest of" in power.why
    for row in (share, rate, power):
        assert (row.low, row.high) == (None, None)
        line = words.line(row)
        assert line.interval == "exact"
        drawing = interval.draw(row)
        assert drawing is not None
        assert (drawing.low, drawing.high, drawing.beyond) == (None, None, False)
        assert drawing.dot is not None


def test_every_report_calls_it_exact(run: Path) -> None:
    verdict, summary = judge(run, parse_slo(SLO)), summarise(run)
    console = Console(file=io.StringIO(), width=160)
    reports.terminal.render(verdict, summary, console)
    assert isinstance(console.file, io.StringIO)
    table = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["achieved_rate", "all", "90.0", "%", "exact", ">=", "95%", "300", "FAIL"] in table
    assert "90.0 - 90.0" not in console.file.getvalue()
    assert "| 90.0 % | exact |" in reports.markdown.render(verdict, summary, read_run(run))
    page = reports.html.render(verdict, summary, read_run(run))
    assert '<td class="num" data-label="interval">exact</td>' in page


def test_what_was_not_measured_is_not_called_exact(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", [0.1] * 30)
    power = judge(directory, parse_slo(SLO)).rows[2]
    assert words.line(power).interval == "-"
