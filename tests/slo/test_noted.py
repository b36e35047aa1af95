"""A check beyond its limit that turns nothing: it is no "ok", and it voids nothing."""

from pathlib import Path

import pytest

from slo.judge import judge
from slo.slofile import parse_slo
from slo.verdict import Result
from tests.slo.make_run import make_run

N = 400
SLO = """\
version: 1
service: tiny
objectives: [{metric: ttft, percentile: 95, max: 420ms}]
validity: {duration: 1m}
"""


ERRORS = SLO.replace("metric: ttft, percentile: 95, max: 420ms", "metric: error_rate, max: 60%")


@pytest.mark.parametrize(
    ("text", "values", "late_s", "check", "result"),
    [
        (SLO.replace("1m", "30s"), [0.1] * N, 0.1, "lateness", Result.PASS),
        (ERRORS.replace("1m", "30s"), [0.8] * 80 + [0.1] * 320, 0.0, "warm-up", Result.PASS),
        (SLO, [0.9] * N, 0.0, "length", Result.FAIL),
    ],
)
def test_what_stands_all_the_same_is_noted(
    tmp_path: Path, text: str, values: list[float], late_s: float, check: str, result: Result
) -> None:
    run = make_run(tmp_path / "run", values, warmup=20, late_s=late_s)
    verdict = judge(run, parse_slo(text))
    (found,) = (one for one in verdict.validity if one.check == check)
    assert (found.outcome, found.voids) == ("noted", ())
    assert found.why.endswith("What is said stands all the same.")
    assert verdict.result is result
