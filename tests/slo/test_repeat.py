"""What to do after a run that could not be judged: which load to send again."""

from pathlib import Path

import pytest

from slo.judge import judge
from slo.record import Failure
from slo.slofile import parse_slo
from slo.verdict import Result
from tests.slo import spoil
from tests.slo.make_run import make_run

SLO = """\
version: 1
service: tiny
load: {%s}
objectives: [{%s}]
"""
TTFT = "metric: ttft, percentile: 95, max: 420ms"
RARE = "metric: ttft, percentile: 99, max: 420ms"
CUT = spoil.in_run(finished=False)


@pytest.mark.parametrize(
    ("load", "objective", "run", "says"),
    [
        # Enough was sent: the same again.
        ("", TTFT, {}, "Repeat the run at 10/s for 30.0 s (about 300 requests)."),
        # Fifty prove no P99; 299 do, none of them over the limit.
        ("", RARE, {"n": 50}, "Repeat the run at 10/s for 30.0 s: about 299 requests would"),
        ("", f"{TTFT}, min_samples: 1000", {},
         "Repeat the run at 10/s for 100 s: about 1,000 requests would decide it."),
        ("", f"{TTFT}, scenario: math, min_samples: 1000", {"scenarios": ("math", "code")},
         "Repeat the run at 10/s for 200 s: about 1,000 requests would decide it."),
        # What slo.yaml asks for stands above what was sent.
        ("rate: 20/s, duration: 1m", TTFT, {},
         "Repeat the run at 20/s for 60.0 s (about 1,200 requests)."),
        ("arrival: concurrency:8", TTFT, {},
         "Repeat the run with arrivals concurrency:8 for 30.0 s."),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_judged_names_the_load_to_repeat(
    tmp_path: Path, load: str, objective: str, run: dict[str, object], says: str
) -> None:
    n = int(str(run.pop("n", 300)))
    directory = make_run(tmp_path / "run", [0.1] * n, **run)  # type: ignore[arg-type]
    CUT(directory)
    (row,) = judge(directory, parse_slo(SLO % (load, objective))).rows
    assert row.outcome is Result.INVALID
    assert says in row.next_step


def test_after_dropped_arrivals_the_load_is_named_too(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", [0.1] * 300, failures={3: Failure.DROPPED})
    (row,) = judge(directory, parse_slo(SLO % ("", TTFT))).rows
    assert row.next_step.startswith("Repeat the run at 10/s for 30.0 s")


@pytest.mark.parametrize(
    ("objective", "check", "says"),
    [
        ("metric: ttft, percentile: 95, max: 70s", "timeout", "--timeout above the limit"),
        (f"{TTFT}, scenario: code", "judged", "--mix that has that scenario"),
    ],
)
def test_what_the_same_load_cannot_mend_is_told_otherwise(
    tmp_path: Path, objective: str, check: str, says: str
) -> None:
    directory = make_run(tmp_path / "run", [0.1] * 800)
    (row,) = judge(directory, parse_slo(SLO % ("", objective))).rows
    assert row.why.startswith(f"Cannot be judged ({check})")
    assert says in row.next_step
