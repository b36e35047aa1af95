"""The words of a verdict, and their exit codes."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

SCHEMA = "1.0"


class Result(StrEnum):
    """What can be said of a run, or of one line of its verdict."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"


EXIT_USAGE = 2
EXIT_INTERNAL = 70
EXIT_CODE = {Result.PASS: 0, Result.FAIL: 1, Result.INCONCLUSIVE: 3, Result.INVALID: 4}


@dataclass(frozen=True, slots=True)
class Row:
    """One objective, judged.

    `measured`, `low` and `high` are in `unit`; all three are None where nothing can be said. What
    is counted and not estimated (achieved_rate, a maximum) has no `low` and no `high`. A percentile
    that falls among failures has no value: then `censored` says e.g. ">60s".
    `limit` is the limit as slo.yaml writes it ("<= 420ms"), `limit_value` the same in `unit`.
    """

    objective: str  # e.g. "ttft p95"
    metric: str
    scenario: str  # "all" where the objective names none
    unit: str  # "s", "1", "1/s", ...
    measured: float | None
    low: float | None
    high: float | None
    censored: str | None
    n: int
    limit: str
    limit_value: float
    confidence: float
    severity: Literal["gate", "warn"]
    outcome: Result
    why: str
    next_step: str
    effective_n: float | None = None  # independent requests that n is worth, where it is a share


@dataclass(frozen=True, slots=True)
class Check:
    """One validity check. A failed one voids the metrics in `voids` ("*" is all of them).

    What lies beyond its limit but cannot turn what is said is "noted", and voids nothing.
    """

    check: str  # e.g. "lateness"
    measured: str
    limit: str
    outcome: Literal["ok", "noted", "void", "not checked"]
    why: str
    voids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one run under one slo.yaml."""

    result: Result
    sentence: str  # the verdict in a sentence
    service: str
    run_id: str
    rows: tuple[Row, ...]
    validity: tuple[Check, ...]
    notes: tuple[str, ...] = field(default=())
    schema: str = SCHEMA

    @property
    def exit_code(self) -> int:
        return EXIT_CODE[self.result]
