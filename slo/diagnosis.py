"""What bounds the server: rules in an order, of which the first that holds is the diagnosis.

Each rule says the numbers that it looked at, also where it does not hold or cannot be checked. GPU
utilisation alone decides nothing: it is 95 % for a pure copy and for a matrix product alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slo.conditions import Condition, at_least, below, every, number, some
from slo.remedies import NEXT, SENTENCES, next_step
from slo.signals import Signals
from slo.thresholds import LIMITS, Limits

NOT_MEASURED, MIXED = "not-measured", "mixed"
Outcome = Literal["holds", "does not hold", "not checked"]
_LEVELS = ("low", "medium", "high")


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
    if gpu.samples >= limits["evidence_samples"] and gpu.seconds >= limits["evidence_s"]:
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


def _no_load(signals: Signals, limits: Limits) -> Condition:
    util = signals.gpu.util_pct if signals.gpu else None
    return every(
        [
            below("requests open", signals.load.open, limits["idle_requests"], limits),
            below("GPU-util", util, limits["idle_util"], limits, unit="%"),
        ]
    )


def _throttled(signals: Signals, limits: Limits) -> Condition:
    """A power cap that full tensor cores run into is their own limit, unless clocks fall far."""
    gpu = signals.gpu
    found = gpu.throttling if gpu else None
    if gpu and found and found.by == "power cap" and _compute_bound(signals, limits).holds:
        clock, own = gpu.clock_ratio, limits["own_limit_clock"]
        if clock is not None and clock >= own and not gpu.limit_lowered:
            told = f"at the power cap {number(100 * found.share)} % of the time, as full tensor "
            return Condition(False, f"{told}cores are, at {number(100 * clock)} % of the clock")
    name = f"slowed down by {found.by}" if found else "throttling"
    share, limit = (100 * found.share if found else None), 100 * limits["throttled"]
    return at_least(name, share, limit, limits, unit="% of the time")


def _kv_pressure(signals: Signals, limits: Limits) -> Condition:
    server = signals.server
    usage = server.kv_usage_p95 if server else None
    full = None if usage is None else 100 * usage
    preempted = server.preemptions if server else None
    out_of_memory = signals.load.out_of_memory
    conditions = [
        at_least("KV cache in use (P95)", full, 100 * limits["kv_usage"], limits, unit="%"),
        at_least("preemptions", preempted, 1, limits),
    ]
    if out_of_memory:
        conditions.append(at_least("out-of-memory failures", out_of_memory, 1, limits))
    # A server offers one of the two at times: the other then decides.
    known = [one for one in conditions if one.holds is not None]
    return some(known or conditions)


def _compute_bound(signals: Signals, limits: Limits) -> Condition:
    gpu = signals.gpu
    tensor = at_least(
        "tensor cores", gpu.tensor_pct if gpu else None, limits["tensor"], limits, unit="%"
    )
    mfu = _percent(signals.mfu) if gpu else None
    estimate = at_least("MFU", mfu, 100 * limits["mfu"], limits, unit="%", estimated=True)
    return _counter_or_estimate(tensor, estimate)


def _bandwidth_bound(signals: Signals, limits: Limits) -> Condition:
    gpu = signals.gpu
    dram = at_least("DRAM", gpu.dram_pct if gpu else None, limits["dram"], limits, unit="%")
    mbu = _percent(signals.mbu) if gpu else None
    estimate = at_least("MBU", mbu, 100 * limits["mbu"], limits, unit="%", estimated=True)
    return _counter_or_estimate(dram, estimate)


def _wasted_traffic(signals: Signals, limits: Limits) -> Condition:
    gpu = signals.gpu
    dram, mbu = (gpu.dram_pct if gpu else None), _percent(signals.mbu)
    ratio = dram / mbu if dram is not None and mbu else None
    counted = f"DRAM over MBU ({number(mbu)} %)" if mbu else "DRAM over MBU"
    return every(
        [
            at_least("DRAM", dram, limits["wasted_dram"], limits, unit="%"),
            at_least(counted, ratio, limits["wasted_ratio"], limits, unit="x"),
            # In prefill, activations move too, which the decode roofline does not know.
            _quiet("tensor cores", signals, limits, "quiet_tensor"),
        ]
    )


def _host_bound(signals: Signals, limits: Limits) -> Condition:
    util = signals.gpu.util_pct if signals.gpu else None
    return every(
        [
            at_least("requests open", signals.load.open, limits["served"], limits),
            below("GPU-util", util, limits["gap_util"], limits, unit="%"),
            _quiet("DRAM", signals, limits, "quiet_dram"),
            _quiet("tensor cores", signals, limits, "quiet_tensor"),
        ]
    )


def _small_kernels(signals: Signals, limits: Limits) -> Condition:
    util = signals.gpu.util_pct if signals.gpu else None
    return every(
        [
            at_least("GPU-util", util, limits["gap_util"], limits, unit="%"),
            _quiet("DRAM", signals, limits, "quiet_dram"),
            _quiet("tensor cores", signals, limits, "quiet_tensor"),
        ]
    )


def _queueing(signals: Signals, limits: Limits) -> Condition:
    load, server = signals.load, signals.server
    ttft, prefill = load.ttft_p50_s, load.prefill_p50_s
    ratio = ttft / prefill if ttft is not None and prefill else None
    spread = None
    if load.tpot_p50_s and load.tpot_p90_s is not None:
        spread = load.tpot_p90_s / load.tpot_p50_s
    of = "prefill" if load.prefill_told else "the quickest TTFT"
    waiting = at_least(
        "requests waiting", server.waiting if server else None, limits["waiting"], limits
    )
    if waiting.holds is None and load.queue_share is not None:
        waiting = at_least(
            "share of TTFT spent in the queue", 100 * load.queue_share, 50, limits, unit="%"
        )
    return every(
        [
            waiting,
            at_least(f"TTFT P50 over {of}", ratio, limits["ttft_over_prefill"], limits, unit="x"),
            below("TPOT P90 over P50", spread, limits["flat_tpot"], limits, unit="x"),
        ]
    )


def _memory_growth(signals: Signals, limits: Limits) -> Condition:
    server = signals.server
    allocated = server.allocated if server else None
    used = signals.gpu.used if signals.gpu else None
    found, name = (allocated, "allocated memory") if allocated else (used, "used GPU memory")
    seconds = found.seconds if found else signals.seconds
    if seconds < limits["growth_s"]:
        least = number(limits["growth_s"])
        return Condition(None, f"memory watched for {number(seconds)} s; needed are {least} s")
    share, late = (found.share, found.late_share) if found else (None, None)
    conditions = [
        at_least(f"{name} rose by", _percent(share), 100 * limits["growth"], limits, unit="%"),
        at_least(
            "in the second half", _percent(late), 100 * limits["growth_late"], limits, unit="%"
        ),
    ]
    return every(conditions)


def _quiet(name: str, signals: Signals, limits: Limits, key: str) -> Condition:
    """Whether a unit is little used; without a counter by the estimate, or by GPU-util as bound."""
    gpu = signals.gpu
    if gpu is None:
        return below(name, None, limits[key], limits, unit="%")
    dram = name == "DRAM"
    counter = gpu.dram_pct if dram else gpu.tensor_pct
    if counter is not None:
        return below(name, counter, limits[key], limits, unit="%")
    # Nothing moves or multiplies while no kernel runs.
    if gpu.util_pct is not None and gpu.util_pct < limits[key]:
        return below(f"{name}, at most GPU-util:", gpu.util_pct, limits[key], limits, unit="%")
    estimate = _percent(signals.mbu if dram else signals.mfu)
    return below(name, estimate, limits[key], limits, unit="%", estimated=True)


def _counter_or_estimate(counter: Condition, estimate: Condition) -> Condition:
    """Either may show it; without a counter the estimate decides alone."""
    if counter.holds is None:
        return estimate
    return some([counter, estimate]) if estimate.holds else counter


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


RULES: tuple[tuple[str, Callable[[Signals, Limits], Condition]], ...] = (
    ("no-load", _no_load),
    ("throttled", _throttled),
    ("kv-pressure", _kv_pressure),
    ("compute-bound", _compute_bound),
    ("bandwidth-bound", _bandwidth_bound),
    ("wasted-traffic", _wasted_traffic),
    ("host-bound", _host_bound),
    ("small-kernels", _small_kernels),
    ("queueing", _queueing),
    ("memory-growth", _memory_growth),
)
WORDS = (*(word for word, _ in RULES), MIXED, NOT_MEASURED)
