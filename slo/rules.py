"""The rules of the diagnosis, in their order: each a condition over the numbers of a run."""

from collections.abc import Callable

from slo.conditions import Condition, at_least, below, every, number, some
from slo.signals import Signals
from slo.thresholds import Limits


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
    active = gpu.tensor_pct if gpu else None
    tensor = at_least("tensor cores", active, limits["tensor"], limits, unit="%")
    mfu = _percent(signals.mfu) if gpu else None
    estimate = at_least("MFU", mfu, 100 * limits["mfu"], limits, unit="%", estimated=True)
    return _counter_or_estimate(tensor, estimate, far=_far(active, limits["tensor"]))


def _bandwidth_bound(signals: Signals, limits: Limits) -> Condition:
    gpu = signals.gpu
    active = gpu.dram_pct if gpu else None
    dram = at_least("DRAM", active, limits["dram"], limits, unit="%")
    mbu = _percent(signals.mbu) if gpu else None
    estimate = at_least("MBU", mbu, 100 * limits["mbu"], limits, unit="%", estimated=True)
    return _counter_or_estimate(dram, estimate, far=_far(active, limits["dram"]))


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


def _counter_or_estimate(counter: Condition, estimate: Condition, *, far: bool) -> Condition:
    """Without a counter the estimate decides; it never speaks against one that is far below."""
    if counter.holds is None:
        return estimate
    return some([counter, estimate]) if estimate.holds and not far else counter


def _far(counted: float | None, limit: float) -> bool:
    return counted is not None and counted < limit / 2


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
