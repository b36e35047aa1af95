"""A run that is to be graded: a spoilt line is named, and nothing is graded without it."""

import json
from pathlib import Path

import pytest

from slo.grade import Verdict, grade_run
from slo.rundir import ANSWERS, CHECKS, GRADES, REQUESTS, RunDirError
from tests.cli.conftest import says_one_line, slo
from tests.slo import spoil
from tests.slo.make_run import make_run

N = 6


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = make_run(tmp_path / "run", [0.1] * N)
    told = {ANSWERS: {"text": "\\boxed{42}"}, CHECKS: {"check": {"kind": "math", "value": 42}}}
    for name, line in told.items():
        lines = (json.dumps({"seq": seq} | line) for seq in range(N))
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    return directory


def with_line(name: str, number: int, line: str) -> spoil.Spoil:
    return spoil.lines(name, lambda rows: [*rows[: number - 1], f"{line}\n", *rows[number:]])


def test_a_whole_run_is_graded(run: Path) -> None:
    assert grade_run(run) == {Verdict.RIGHT: N}


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (with_line(REQUESTS, 3, "{}"), f"{REQUESTS}:3: seq: Field required"),
        (spoil.cut(REQUESTS), f"{REQUESTS}:6: the last line is cut off"),
        (with_line(ANSWERS, 2, '{"text": "a"}'), f"{ANSWERS}:2: seq: Field required"),
        (with_line(ANSWERS, 2, '{"seq": 1}'), f"{ANSWERS}:2: text: Field required"),
        (with_line(ANSWERS, 2, "[1]"), f"{ANSWERS}:2: the line: "),
        (spoil.cut(ANSWERS), f"{ANSWERS}:6: no JSON"),
        (with_line(CHECKS, 4, '{"check": {"kind": "math", "value": 1}}'), f"{CHECKS}:4: seq: "),
        (with_line(CHECKS, 4, '{"seq": 3}'), f"{CHECKS}:4: check: Field required"),
        (with_line(CHECKS, 4, '{"seq": 3, "check": 5}'), f"{CHECKS}:4: check: "),
        (with_line(CHECKS, 4, '{"seq": 3, "check": {"kind": "art"}}'), f"{CHECKS}:4: check: Input"),
        (with_line(CHECKS, 4, '{"seq": 3, "check": {"kind": "math"}}'),
         f"{CHECKS}:4: check.math.value: Field required"),
        (with_line(CHECKS, 4, '{"seq": 3, "check": {"kind": "code", "function": "f"}}'),
         f"{CHECKS}:4: check.code.tests: Field required"),
        (spoil.cut(CHECKS), f"{CHECKS}:6: no JSON"),
    ],
)  # fmt: skip
def test_a_spoilt_line_is_named_and_nothing_is_graded(
    run: Path, one: spoil.Spoil, says: str
) -> None:
    one(run)
    with pytest.raises(RunDirError) as caught:
        grade_run(run)
    assert str(caught.value).startswith(f"{run}/{says}")
    assert not (run / GRADES).exists()


def test_the_command_ends_as_with_any_bad_file_of_a_run(run: Path) -> None:
    with_line(ANSWERS, 2, '{"seq": 1}')(run)
    says_one_line(slo("grade", run, cwd=run.parent), 4, f"slo grade: {run / ANSWERS}:2: text: ")
