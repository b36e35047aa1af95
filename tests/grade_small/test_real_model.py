"""A real model's answers, stored under load and graded: the whole way, on the CPU."""

import json
import os
from pathlib import Path

import pytest

from slo.grade import Verdict, read_grades
from slo.rundir import CHECKS, read_records
from tests.cli.conftest import slo
from tests.serving import running_target

pytestmark = pytest.mark.smol


def test_answers_of_a_real_model_are_graded(tmp_path: Path) -> None:
    model = Path(os.environ["TAILGATE_SMOL_MODEL"]).resolve()
    with running_target("--engine", "hf", "--model", str(model)) as url:
        done = slo(
            "run", "--target", url, "--rate", "0.2/s", "--duration", "30s", "--warmup", "0s",
            "--arrival", "constant", "--mix", "math=0.5,code=0.5", "--input-class", "128",
            "--max-tokens", "96", "--temperature", "0", "--seed", "3", "--timeout", "150s",
            "--sidecar", "off", "--store-answers", "--out", "run", cwd=tmp_path, timeout=240,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    graded = slo("grade", "run", cwd=tmp_path)
    assert graded.returncode == 0, graded.stderr
    grades = {grade.seq: grade for grade in read_grades(tmp_path / "run")}
    records = {record.seq: record for record in read_records(tmp_path / "run")}
    assert grades.keys() == records.keys()
    assert all(record.completed for record in records.values())
    checks = [json.loads(line) for line in (tmp_path / "run" / CHECKS).read_text().splitlines()]
    assert {check["check"]["kind"] for check in checks} == {"math", "code"}
    # Its 135 million weights seldom solve these, but they do answer.
    answered = [g for g in grades.values() if g.grade in (Verdict.RIGHT, Verdict.WRONG)]
    assert answered
    assert all(grade.why for grade in grades.values() if grade.grade is not Verdict.RIGHT)
