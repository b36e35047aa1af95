"""Small runs to be judged, and what is said of them."""

from collections.abc import Callable
from pathlib import Path

from slo.judge import judge
from slo.slofile import parse_slo
from slo.verdict import Row, Verdict
from tests.slo import spoil
from tests.slo.make_run import make_run, shuffled

SLO = """\
version: 1
service: tiny
load: {rate: 10/s, arrival: constant}
objectives:
  - {metric: ttft, percentile: 95, max: 420ms}
  - {metric: e2e, percentile: 95, max: 1.5s}
  - {metric: error_rate, max: 2%}
"""
N = 300
FAST = shuffled([0.1 + 0.0005 * i for i in range(N)])
Make = Callable[[Path], Path]


def made(ttft: list[float] = FAST, *spoils: spoil.Spoil, **options: object) -> Make:
    def make(path: Path) -> Path:
        directory = make_run(path / "run", ttft, **options)
        for one in spoils:
            one(directory)
        return directory

    return make


def slo_with(*objectives: str, load: str = "", validity: str = "") -> str:
    listed = "".join(f"  - {{{objective}}}\n" for objective in objectives)
    extra = f"load: {{{load}}}\n" * bool(load) + f"validity: {{{validity}}}\n" * bool(validity)
    return f"version: 1\nservice: tiny\n{extra}objectives:\n{listed}"


def verdict_of(directory: Path, text: str = SLO) -> Verdict:
    return judge(directory, parse_slo(text))


def row_of(verdict: Verdict, name: str) -> Row:
    return next(row for row in verdict.rows if row.objective == name)
