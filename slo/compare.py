"""Two servers under the same load: what changed, whether it got worse, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from slo.compare_answers import Answers, answers_of
from slo.compare_contract import Term, terms
from slo.compare_lines import Line, Sides, lines, sides_of
from slo.compare_shift import Shift, shift_of
from slo.compare_values import Observed, better_of, observe, unit_of
from slo.measurements import ALL
from slo.quantities import show
from slo.rundir import REQUESTS, RUN, RunDirError

SCHEMA = "1.0"
GATES = ("ttft.p95", "e2e.p95", "error_rate", "accuracy")
_SHIFTS = ("ttft", "e2e")


class Result(StrEnum):
    """What a comparison says."""

    NOT_WORSE = "NOT WORSE"
    WORSE = "WORSE"
    CANNOT_SAY = "CANNOT SAY"
    NOT_COMPARABLE = "NOT COMPARABLE"


EXIT_CODE = {
    Result.NOT_WORSE: 0,
    Result.WORSE: 1,
    Result.CANNOT_SAY: 3,
    Result.NOT_COMPARABLE: 4,
}


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of a comparison. Shares are fractions."""

    allow: float = 0.05  # by which a number may get worse, as a ratio
    allow_points: float = 0.01  # by which a share may get worse, as a difference
    gates: tuple[str, ...] = GATES
    confidence: float = 0.95
    drift: float = 0.03  # assumed between runs, where too few of them show it
    accept: tuple[str, ...] = ()  # terms of the contract that may be broken
    in_time: Mapping[str, float] = field(default_factory=dict)  # of a correct answer, seconds

    def allowed(self, metric: str) -> float:
        """By how much a metric may get worse."""
        return self.allow_points if unit_of(metric) == "1" else self.allow


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether one number got worse than allowed; its ends hold for all gates together."""

    metric: str
    allowed: float
    line: Line
    outcome: Result


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that a comparison says; without lines where it is not comparable."""

    result: Result
    sentence: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    labels: tuple[str, str]
    contract: tuple[Term, ...]
    method: str
    confidence: float
    gates: tuple[Gate, ...] = ()
    lines: tuple[Line, ...] = ()  # the worst first
    shifts: tuple[Shift, ...] = ()
    answers: Answers | None = None
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA

    @property
    def exit_code(self) -> int:
        """0 not worse, 1 worse, 3 cannot say, 4 not comparable."""
        return EXIT_CODE[self.result]


def runs_in(path: Path) -> tuple[Path, ...]:
    """The runs of a side: a run directory itself, or those in a folder, by name.

    Raises:
        RunDirError: there is none.
    """
    if (path / RUN).exists() or (path / REQUESTS).exists():
        return (path,)
    if not path.is_dir():
        raise RunDirError(f"{path}: no such run directory")
    found = tuple(sorted(inner for inner in path.iterdir() if (inner / RUN).exists()))
    if not found:
        raise RunDirError(f"{path}: neither a run directory nor a folder of them")
    return found


def compare(before: Sequence[Path], after: Sequence[Path], ask: Ask) -> Comparison:
    """Compare the runs of two servers.

    Raises:
        RunDirError: a run cannot be read; names the file.
    """
    left, right = ([observe(path) for path in side] for side in (before, after))
    contract = terms(left, right, ask.accept)
    sides = sides_of(left, right, ask.drift)
    names = [tuple(seen.run.id for seen in side) for side in (left, right)]
    labels = (_label(sides.before, "before"), _label(sides.after, "after"))
    broken = [term for term in contract if term.voids]
    if broken:
        told = "; ".join(f"{term.name}: {term.before} against {term.after}" for term in broken)
        return Comparison(
            Result.NOT_COMPARABLE, f"These runs cannot be compared. {told}.",
            names[0], names[1], labels, contract, sides.method, ask.confidence,
        )  # fmt: skip
    answers = answers_of(left, right, ask.in_time, ask.confidence)
    found = tuple(lines(sides, answers, ask.allowed, ask.confidence))
    gates = tuple(_gates(sides, answers, ask))
    measured = [[seen.measured for seen in side] for side in (left, right)]
    shifts = [shift_of(name, measured[0], measured[1], ask.confidence) for name in _SHIFTS]
    result = _result(gates)
    return Comparison(
        result=result,
        sentence=_sentence(result, gates),
        before=names[0],
        after=names[1],
        labels=labels,
        contract=contract,
        method=sides.method,
        confidence=ask.confidence,
        gates=gates,
        lines=tuple(sorted(found, key=_worst_first)),
        shifts=tuple(shift for shift in shifts if shift is not None),
        answers=answers,
        notes=tuple(_notes(sides, found, answers, contract)),
    )


def _label(side: Sequence[Observed], otherwise: str) -> str:
    labels = {seen.run.label for seen in side}
    return labels.pop() or otherwise if len(labels) == 1 else otherwise


def _gates(sides: Sides, answers: Answers | None, ask: Ask) -> Iterator[Gate]:
    """Several gates are several chances of a false alarm: each gets its part of the error."""
    # Unless it was asked for, accuracy is a gate where answers were graded.
    usual = ask.gates == GATES and answers is None
    wanted = [name for name in ask.gates if not (usual and name == "accuracy")]
    level = 1 - (1 - ask.confidence) / max(len(wanted), 1)
    strict = {
        line.metric: line
        for line in lines(sides, answers, ask.allowed, level)
        if line.scenario == ALL
    }
    for name in wanted:
        if name not in strict:
            known = ", ".join(strict)
            raise RunDirError(f"{name}: not measured in every run; allowed as a gate: {known}")
        line, allowed = strict[name], ask.allowed(name)
        yield Gate(name, allowed, line, _gate(line, allowed))


def _gate(line: Line, allowed: float) -> Result:
    sign = -1 if better_of(line.metric) > 0 else 1
    ends = (line.low, line.high) if sign > 0 else (line.high, line.low)
    least, most = (None if end is None else sign * end for end in ends)
    if least is not None and least > allowed:
        return Result.WORSE
    if most is not None and most <= allowed:
        return Result.NOT_WORSE
    return Result.CANNOT_SAY


def _result(gates: Sequence[Gate]) -> Result:
    outcomes = {gate.outcome for gate in gates}
    if Result.WORSE in outcomes:
        return Result.WORSE
    return Result.NOT_WORSE if outcomes == {Result.NOT_WORSE} else Result.CANNOT_SAY


def _sentence(result: Result, gates: Sequence[Gate]) -> str:
    if result is Result.NOT_WORSE:
        return f"None of {', '.join(g.metric for g in gates)} got worse than allowed."
    told = [gate for gate in gates if gate.outcome is result]
    if result is Result.WORSE:
        parts = [f"{g.metric} {changed(g.line)}, allowed {_size(g.allowed, g.line)}" for g in told]
        return f"Worse than allowed: {'; '.join(parts)}."
    parts = [f"{g.metric} {changed(g.line)}{_more(g.line.more)}" for g in told]
    return f"It cannot be said whether these got worse than allowed: {'; '.join(parts)}."


def changed(line: Line) -> str:
    """The change and its interval in words: "+12 % (8 % to 16 %)"."""
    if line.change is None:
        if line.low is None:
            return "not known"
        return f"more than {_size(line.low, line)}"
    ends = [None if end is None else _size(end, line) for end in (line.low, line.high)]
    if None in ends:
        return _size(line.change, line) if ends == [None, None] else (
            f"{_size(line.change, line)} ({ends[0] or '?'} to {ends[1] or '?'})"
        )  # fmt: skip
    return f"{_size(line.change, line)} ({ends[0]} to {ends[1]})"


def _size(value: float, line: Line) -> str:
    shown = f"{100 * value:+.2g}" if abs(value) < 10 else f"{100 * value:+,.0f}"
    return f"{shown} %" if line.relative else f"{shown} points"


def _more(times: float | None) -> str:
    return "" if times is None else f", about {times:.2g} times as much load would tell"


def _worst_first(line: Line) -> tuple[int, float]:
    rank = {"worse": 0, "changed": 1, "~": 2, "better": 3, "-": 4}[line.outcome]
    size = abs(line.change) if line.change is not None else float("inf")
    return rank, -size


def _notes(
    sides: Sides, found: Sequence[Line], answers: Answers | None, contract: Sequence[Term]
) -> Iterator[str]:
    if sides.method == "within":
        yield (
            "Too few runs show what differs from run to run: a drift of "
            f"{100 * sides.drift:.2g} % between runs is assumed (--drift). Three runs of each, "
            "or `slo ab`, would measure it."
        )
    if sides.method == "pairs" and not sides.side_by_side:
        yield (
            "The runs of a pair were not side by side in time: a drift of the machine in between "
            "would show as a change. `slo ab` interleaves them."
        )
    for term in contract:
        if term.accepted:
            yield f"Accepted though it differs: {term.name}, {term.before} against {term.after}."
    length = next(
        (a for a in found if a.metric == "output_tokens.mean" and a.scenario == ALL), None
    )
    if length is not None and length.outcome == "changed" and length.change is not None:
        shorter = "shorter" if length.change < 0 else "longer"
        yield (
            f"Answers became {abs(100 * length.change):.2g} % {shorter}, "
            f"{show(length.before or 0, 'tokens')} to {show(length.after or 0, 'tokens')}: E2E "
            "changes with that alone. TPOT and the numbers per token do not."
        )
    if answers is None:
        yield (
            "The answers were not graded: whether the speed was paid for with them is not known. "
            "Run with --store-answers, then `slo grade RUN`."
        )
