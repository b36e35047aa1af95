"""Right, wrong, cut off, or no answer: told from the texts that a run kept."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtests.prompts import check
from slo import sandbox
from slo.compare_answers import _pairs, answers_of, detectable
from slo.compare_values import observe
from slo.ending import UsageError
from slo.grade import Grade, Verdict, grade_run, read_grades
from slo.grade_code import code_of, first_wrong
from slo.grade_math import same, value_of
from slo.record import Failure
from slo.rundir import ANSWERS, CHECKS, GRADES, read_records
from tests.slo.make_run import make_run, write_records


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("so it is 3, and then \\boxed{42}", 42),
        ("\\boxed{1} no: \\boxed{1,234}", 1234),
        ("\\boxed{\\frac{24}{2}}", 12),
        ("\\boxed{3 \\times 10^{2}}", 300),
        ("\\boxed{42\\text{ pears}}", 42),
        ("\\boxed{42.0}", 42),
        ("答案是 42 件。", 42),
        ("the walk is 7 blocks, so \u22125", -5),
    ],
)
def test_the_right_value_is_seen_however_it_is_written(text: str, value: int) -> None:
    found = value_of(text, ended=True)
    assert found is not None
    assert same(found, value)
    assert not same(found, value + 1)


@pytest.mark.parametrize(
    "text", ["\\boxed{9^{9^{9}}}", "\\boxed{x}", "\\boxed{42.5}", "\\boxed{}", "1" * 5000]
)
def test_what_is_no_such_value_is_wrong(text: str) -> None:
    assert not same(value_of(text, ended=True) or "", 42)


def test_the_last_number_of_a_text_that_was_cut_off_is_no_answer() -> None:
    assert value_of("then 42", ended=True) == "42"
    assert value_of("then 42", ended=False) is None
    assert value_of("\\boxed{42} then", ended=False) == "42"


def test_the_last_block_that_defines_the_function_is_the_answer() -> None:
    text = (
        "```python\ndef f(n): return 1\n```\nBetter:\n```\ndef f(n): return 2\n```\n```sh\nls\n```"
    )
    assert code_of(text, "f") == "def f(n): return 2"
    assert code_of("def f(n):\n    return 3", "f") == "def f(n):\n    return 3"
    assert code_of("I would write a loop.", "f") is None


def test_true_is_not_one() -> None:
    assert first_wrong([1, True], [[[0], 1], [[1], 1]]) == "[1] gave True, not 1"
    assert first_wrong([[1], "a"], [[[0], [1]], [[1], "a"]]) is None


def right_code(known: Mapping[str, Any]) -> str:
    table = {repr(arguments[0]): value for arguments, value in known["tests"]}
    return f"```python\ndef {known['function']}(x):\n    return {table!r}[repr(x)]\n```"


def with_answers(directory: Path, texts: Mapping[int, str], checks: Mapping[int, object]) -> Path:
    for name, key, values in ((ANSWERS, "text", texts), (CHECKS, "check", checks)):
        lines = (json.dumps({"seq": seq, key: value}) for seq, value in values.items())
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    return directory


@pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox here")
def test_a_run_is_graded_line_by_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0.1] * 8, failures={5: Failure.RESET})
    records = [
        replace(r, finish_reason="length") if r.seq in (3, 4) else r for r in read_records(run)
    ]
    write_records(run, records)
    code = check("code-en-128-7-1")
    checks = {seq: {"kind": "math", "value": 42} for seq in range(6)} | {6: code, 7: code}
    good = right_code(code)
    texts = {0: "\\boxed{42}", 1: "\\boxed{41}", 2: "I cannot.", 3: "then 42", 4: "\\boxed{42} so",
             6: good, 7: good.replace("return", "return 1 +")}  # fmt: skip
    with_answers(run, texts, checks)
    counts = grade_run(run)
    grades = {grade.seq: grade for grade in read_grades(run)}
    assert [grades[seq].grade for seq in range(8)] == [
        Verdict.RIGHT, Verdict.WRONG, Verdict.NO_ANSWER, Verdict.TRUNCATED, Verdict.RIGHT,
        Verdict.NO_ANSWER, Verdict.RIGHT, Verdict.WRONG,
    ]  # fmt: skip
    assert counts[Verdict.RIGHT] == 3
    assert grades[1].why == "41, not 42"
    assert "reset" in grades[5].why


def test_a_run_without_answers_says_what_to_do(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0.1] * 3)
    with pytest.raises(UsageError, match="only a run with --store-answers has it"):
        grade_run(run)


def graded(path: Path, right: set[int], n: int = 100) -> Path:
    make_run(path, [0.1] * n, rate_per_s=2.0, e2e_s=[0.2 if i % 2 else 0.8 for i in range(n)])
    grades = [Grade(seq, Verdict.RIGHT if seq in right else Verdict.WRONG, "") for seq in range(n)]
    lines = (json.dumps({"seq": g.seq, "grade": g.grade, "why": ""}) for g in grades)
    (path / GRADES).write_text("".join(f"{line}\n" for line in lines))
    return path


def test_the_same_prompts_are_compared_one_by_one(tmp_path: Path) -> None:
    before = observe(graded(tmp_path / "before", set(range(80))))
    after = observe(graded(tmp_path / "after", set(range(10, 84))))
    found = answers_of([before], [after], {"e2e": 0.5}, 0.95)
    assert found is not None
    pairs = found.pairs["all"]
    assert (pairs.n, pairs.lost, pairs.won) == (100, 10, 4)
    assert pairs.p == pytest.approx(0.1796, abs=1e-4)  # binomial: 4 or fewer of 14, both tails
    assert pairs.change == pytest.approx(-0.06)
    assert pairs.low < -0.06 < pairs.high
    good = found.before[0]
    assert good.good.part == 40  # right, and one of two in time
    assert good.good_per_s == pytest.approx(0.8)
    assert good.offered_per_s == pytest.approx(2.0)


def test_the_smallest_loss_that_would_show_shrinks_with_the_root_of_pairs() -> None:
    assert detectable(0.1, 400, 0.95) == pytest.approx(detectable(0.1, 100, 0.95) / 2)


def test_accuracy_stands_beside_the_load(tmp_path: Path) -> None:
    """Alternate requests overlap: of those sent beside another, all are wrong."""
    before = observe(graded(tmp_path / "before", set(range(100))))
    after = observe(graded(tmp_path / "after", {i for i in range(100) if i % 2 == 0}))
    found = answers_of([before], [after], {}, 0.95)
    assert found is not None
    low, high = found.by_load[0], found.by_load[-1]
    assert low.after is not None
    assert high.after is not None
    assert low.after.value > 0.9
    assert high.after.value < 0.1


def test_without_a_prompt_in_common_there_are_no_pairs(tmp_path: Path) -> None:
    before = observe(graded(tmp_path / "before", {1}))
    after = observe(graded(tmp_path / "after", {1}, n=90))
    assert _pairs([before], [after], "all", 0.95) is None
