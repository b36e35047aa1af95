"""What bounds the server: rules in an order, of which the first that holds is the diagnosis.

Each rule says the numbers that it looked at, also where it does not hold or cannot be checked. GPU
utilisation alone decides nothing: it is 95 % for a pure copy and for a matrix product alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slo.conditions import Condition, number
from slo.remedies import NEXT, SENTENCES, next_step
from slo.rules import RULES
from slo.signals import Signals
from slo.thresholds import LIMITS, Limits

NOT_MEASURED, MIXED = "not-measured", "mixed"
Outcome = Literal["holds", "does not hold", "not checked"]
_LEVELS = ("low", "medium", "high")
WORDS = (*(word for word, _ in RULES), MIXED, NOT_MEASURED)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, checked."""

    word: str
    outcome: Outcome
    numbers: str  # what was compared with what
    near: bool
    estimated: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The word, and all that it rests on."""

    word: str
    sentence: str
    numbers: str
    confidence: str  # low, medium, high
    doubts: tuple[str, ...]  # why it is not higher
    next_step: str
    also: tuple[str, ...]  # later rules that hold too
    rules: tuple[Rule, ...]


def diagnose(signals: Signals, limits: Limits = LIMITS) -> Diagnosis:
    """Name what bounds the server in this run."""
    signals = _enough(signals, limits)
    rules = tuple(_checked(word, make(signals, limits)) for word, make in RULES)
    holding = [rule for rule in rules if rule.outcome == "holds"]
    if holding:
        first = holding[0]
        doubts = tuple(_doubts(first, rules))
        return Diagnosis(
            word=first.word,
            sentence=SENTENCES[first.word],
            numbers=first.numbers,
            confidence=_LEVELS[max(0, 2 - len(doubts))],
            doubts=doubts,
            next_step=next_step(first.word, signals, limits),
            also=tuple(rule.word for rule in holding[1:]),
            rules=rules,
        )
    # A run too short for memory growth is no doubt about the rest.
    unchecked = [rule.word for rule in rules[:-1] if rule.outcome == "not checked"]
    word = NOT_MEASURED if signals.gpu is None else MIXED
    why = signals.gpu_absent if signals.gpu is None else _means(signals)
    doubts = (f"not checked: {', '.join(unchecked)}",) if unchecked else ()
    level = _LEVELS[0] if unchecked else _LEVELS[1]
    return Diagnosis(
        word, SENTENCES[word], why or "", level, doubts, NEXT[word], (), rules
    )  # fmt: skip


def _enough(signals: Signals, limits: Limits) -> Signals:
    """Without the GPU where there are too few samples of it to judge by."""
    gpu = signals.gpu
    if gpu is None:
        return signals
    if gpu.samples >= limits["evidence_samples"] and gpu.seconds >= 0.98 * limits["evidence_s"]:
        return signals
    least = f"{number(limits['evidence_samples'])} over {number(limits['evidence_s'])} s"
    why = f"{gpu.samples} GPU samples over {number(gpu.seconds)} s are too few; needed are {least}"
    return replace(signals, gpu=None, gpu_absent=why)


def _checked(word: str, condition: Condition) -> Rule:
    outcome: Outcome = "not checked"
    if condition.holds is not None:
        outcome = "holds" if condition.holds else "does not hold"
    return Rule(word, outcome, condition.text, condition.near, condition.estimated)


def _doubts(found: Rule, rules: Sequence[Rule]) -> list[str]:
    doubts = []
    earlier = rules[: rules.index(found)]
    unchecked = [rule.word for rule in earlier if rule.outcome == "not checked"]
    if unchecked:
        doubts.append(f"not excluded, for want of numbers: {', '.join(unchecked)}")
    if found.estimated:
        doubts.append("it rests on an estimate by the roofline, not on a counter")
    if found.near:
        doubts.append("a number lies near its threshold")
    close = [rule.word for rule in earlier if rule.near and rule.outcome == "does not hold"]
    if close:
        doubts.append(f"nearly also: {', '.join(close)}")
    return doubts


def _means(signals: Signals) -> str:
    gpu = signals.gpu
    assert gpu is not None
    told = {"GPU-util": gpu.util_pct, "DRAM": gpu.dram_pct, "tensor": gpu.tensor_pct}
    parts = [f"{name} {number(value)} %" for name, value in told.items() if value is not None]
    return ", ".join([*parts, f"{number(signals.load.open)} requests open"])
