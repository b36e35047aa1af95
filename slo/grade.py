"""Were the answers of a run right? Told after the run, from the texts that it kept.

Grading needs answers.jsonl and checks.jsonl (--store-answers), and writes grades.jsonl: one line
for each request that was judged, {"seq", "grade", "why"}.
"""

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter

from slo import sandbox
from slo.ending import UsageError
from slo.grade_code import code_of, first_wrong
from slo.grade_math import same, value_of
from slo.record import Failure, Record
from slo.rundir import (
    ANSWERS,
    CHECKS,
    GRADES,
    read_lines,
    read_records,
    validated,
    write_atomic,
)


class Verdict(StrEnum):
    """What came of one answer."""

    RIGHT = "right"
    WRONG = "wrong"
    TRUNCATED = "truncated"  # cut off at max_tokens before it gave an answer
    NO_ANSWER = "no_answer"  # it ended without one, or the request failed


@dataclass(frozen=True, slots=True)
class Grade:
    """One line of grades.jsonl."""

    seq: int
    grade: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """One line of answers.jsonl, as far as it is graded."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class _Math:
    kind: Literal["math"]
    value: int


@dataclass(frozen=True, slots=True)
class _Code:
    kind: Literal["code"]
    function: str
    tests: list[tuple[list[Any], Any]]


@dataclass(frozen=True, slots=True)
class _Check:
    """One line of checks.jsonl."""

    seq: int
    check: Annotated[_Math | _Code, Field(discriminator="kind")]


T = TypeVar("T")


def grade_run(directory: Path) -> Counter[Verdict]:
    """Grade a run's answers into grades.jsonl, and count them.

    Raises:
        UsageError: it kept no answers; or they cannot be graded on this machine.
        RunDirError: a file cannot be read.
    """
    for name in (ANSWERS, CHECKS):
        if not (directory / name).exists():
            raise UsageError(f"{directory / name}: missing; only a run with --store-answers has it")
    texts = {line.seq: line.text for line in _lines(directory / ANSWERS, _Answer)}
    checks = {line.seq: asdict(line.check) for line in _lines(directory / CHECKS, _Check)}
    _require({check["kind"] for check in checks.values()})
    judged = [
        record
        for record in read_records(directory)  # all of them: what is left is not the run
        if record.phase == "measured"
        and record.error is not Failure.DROPPED
        and record.seq in checks  # of a user's own prompts no answer is known
    ]

    def graded(record: Record) -> Grade:
        return grade(record, texts.get(record.seq, ""), checks[record.seq])

    # Threads, as the work is done by the sandbox's processes; math_verify wants the main thread.
    code = [r for r in judged if checks[r.seq]["kind"] == "code"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        grades = {one.seq: one for one in pool.map(graded, code)}
    grades |= {r.seq: graded(r) for r in judged if r.seq not in grades}
    lines = (json.dumps(asdict(grades[seq]), ensure_ascii=False) for seq in sorted(grades))
    write_atomic(directory / GRADES, "".join(f"{line}\n" for line in lines))
    return Counter(one.grade for one in grades.values())


def read_grades(directory: Path) -> Iterator[Grade]:
    """Read grades.jsonl.

    Raises:
        RunDirError: missing, or a line that is no grade; names file and line.
    """
    return _lines(directory / GRADES, Grade)


def _lines(path: Path, kind: type[T]) -> Iterator[T]:
    adapter = TypeAdapter(kind)
    for number, line in enumerate(read_lines(path, whole=True), 1):
        yield validated(adapter, line, f"{path}:{number}")


def grade(record: Record, text: str, check: Mapping[str, Any]) -> Grade:
    """Grade one answer by its check."""
    if not record.completed:
        return Grade(record.seq, Verdict.NO_ANSWER, f"the request failed: {record.error}")
    cut = record.finish_reason == "length"
    verdict, why = _JUDGES[check["kind"]](text, check, cut)
    if cut and verdict is Verdict.NO_ANSWER:
        verdict, why = Verdict.TRUNCATED, f"cut off at {record.output_tokens} tokens: {why}"
    return Grade(record.seq, verdict, why)


def _math(text: str, check: Mapping[str, Any], cut: bool) -> tuple[Verdict, str]:
    said = value_of(text, ended=not cut)
    if said is None:
        return Verdict.NO_ANSWER, "no value"
    if same(said, check["value"]):
        return Verdict.RIGHT, ""
    return Verdict.WRONG, f"{said:.60}, not {check['value']}"


def _code(text: str, check: Mapping[str, Any], cut: bool) -> tuple[Verdict, str]:
    code = code_of(text, check["function"])
    if code is None:
        return Verdict.NO_ANSWER, f"no Python code that defines {check['function']}"
    tests = check["tests"]
    returned = sandbox.call(code, check["function"], [arguments for arguments, _ in tests])
    if not returned.ready:
        raise UsageError(f"the sandbox could not be set up: {returned.error}")
    wrong = returned.error or first_wrong(returned.values, tests)
    return (Verdict.WRONG, wrong) if wrong else (Verdict.RIGHT, "")


_JUDGES = {"math": _math, "code": _code}


def _require(kinds: set[str]) -> None:
    """Say before anything is graded what cannot be, so that no grade hangs on what is installed."""
    if "math" in kinds and importlib.util.find_spec("math_verify") is None:
        raise UsageError("grading maths needs math-verify; pip install 'tailgate[grade]'")
    if "code" in kinds and (why := sandbox.refusal()) is not None:
        raise UsageError(f"{why}; copy the run to a machine that can, and grade it there")
