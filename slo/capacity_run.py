"""A whole search against a real target: from what was asked to an answer on disk, resumable."""

import math
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from slo import capacity_probe, capacity_search, cooldown, target_probe
from slo.capacity import Probe
from slo.capacity_plan import Limits, Stop, next_step
from slo.capacity_probe import Setting
from slo.capacity_search import Answer, Search
from slo.ending import UsageError
from slo.fingerprint import fingerprint
from slo.objectives import Slo

FIRST_RATE = 1.0
_FACTOR = 32.0  # without --max, a search stops doubling so far above where it began


def limits_for(
    slo: Slo,
    *,
    low: float | None,
    high: float | None,
    resolution: float,
    budget_s: float,
    shortest_s: float,
    whole: bool,
) -> Limits:
    """Where and how finely to search.

    Raises:
        UsageError: the range or the budget holds nothing to probe.
    """
    start = low or (FIRST_RATE if whole else slo.load.rate_per_s or FIRST_RATE)
    bottom = low or (1.0 if whole else start / _FACTOR)
    top = high or math.inf
    if top <= bottom:
        raise UsageError(f"--max: {top:g} is not above --min: {bottom:g}")
    if whole and not (bottom.is_integer() and (top.is_integer() or high is None)):
        raise UsageError("--min, --max: users are whole numbers")
    slowest = max((limit for o in slo.objectives for limit in o.limits_s), default=0.0)
    limits = Limits(
        low=bottom,
        high=min(top, start * 2.0**20),
        resolution=resolution,
        budget_s=budget_s,
        shortest_s=shortest_s,
        settle_s=max(slo.load.warmup_s or 0.0, slowest / 2, 2.0),
        start=start,
        whole=whole,
    )
    if isinstance(first := next_step((), limits), Stop):
        raise UsageError(f"--budget: {budget_s:g} s are too few for the first probe: {first.why}")
    return limits


def search(setting: Setting, limits: Limits, current: float | None, *, force: bool) -> Search:
    """Search, or go on with the search in the folder; what was found is kept after each probe.

    Raises:
        UsageError: the folder holds another search, or one that has ended.
        DriveError, TargetError: the target cannot be measured.
    """
    say = partial(setting.console.print, markup=False, highlight=False, soft_wrap=True)
    key = target_probe.api_key(setting.load.api_key_env)
    target_probe.wait_until_ready(
        setting.load.target, timeout_s=setting.ready_timeout_s, key=key, say=say
    )
    model = setting.load.model or target_probe.first_model(setting.load.target, key=key)
    setting = replace(setting, load=replace(setting.load, model=model))
    begun = _begun(setting, limits, force=force)
    if begun.probes:
        say(f"going on after {len(begun.probes)} probes of {setting.out}")
    if begun.seed and setting.load.seed is None:
        setting = replace(setting, load=replace(setting.load, seed=begun.seed))
    idle = cooldown.look(setting.load.target, model, key)
    state = begun

    def keep(probes: tuple[Probe, ...]) -> None:
        nonlocal state
        state = replace(state, probes=probes)
        capacity_search.write_search(setting.out, state)
        say(in_words(probes[-1], limits))

    setting.out.mkdir(parents=True, exist_ok=True)
    ask = partial(capacity_probe.probe, setting, idle)
    probes, stop = capacity_search.run(begun.probes, limits, ask, keep)
    found = capacity_search.answer(
        probes, stop, knee=capacity_probe.knee_of(setting.out), current=current
    )
    state = replace(state, probes=probes, answer=found)
    capacity_search.write_search(setting.out, state)
    return state


def _begun(setting: Setting, limits: Limits, *, force: bool) -> Search:
    asked = {
        "target": setting.load.target,
        "model": setting.load.model,
        "over": setting.over,
        "objectives": [asdict(objective) for objective in setting.slo.objectives],
        "load": {
            name: value
            for name, value in asdict(setting.load).items()
            if name in ("mix", "input_class", "max_tokens", "temperature", "top_p", "ignore_eos",
                        "reasoning", "arrival", "timeout_s", "max_in_flight")
        },
    }  # fmt: skip
    if not force and (setting.out / capacity_search.FILE).exists():
        before = capacity_search.read_search(setting.out)
        if _plain(before.asked) != _plain(asked):
            raise UsageError(f"{setting.out}: holds another search; name another --out, or --force")
        if before.answer is not None and before.limits == limits:
            raise UsageError(
                f"{setting.out}: that search has ended; name another --out, or --force"
            )
        return replace(before, limits=limits, answer=None)
    return Search(
        asked=_plain(asked),
        limits=limits,
        seed=setting.load.seed or int(datetime.now(UTC).timestamp()) % 1_000_000,
        started_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        fingerprint=fingerprint(setting.load.target, setting.load.api_key_env),
    )


def _plain(value: Any) -> Any:
    """As JSON would give it back: tuples are lists."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def in_words(probe: Probe, limits: Limits) -> str:
    """One line of a probe."""
    unit = " users" if limits.whole else "/s"
    early = ", ended early" if probe.stopped else ""
    return (
        f"{probe.rate:.4g}{unit}: {probe.result} ({probe.requests:,} requests{early}) {probe.why}"
    )


def sentence(answer: Answer, *, whole: bool) -> str:
    """The answer in a sentence."""
    unit = " users" if whole else "/s"
    sure = f"with {100 * answer.confidence:.3g} % confidence"
    if answer.passes is None and answer.fails is None:
        return f"No rate is proven to pass or to fail: {answer.why}."
    elif answer.passes is None:
        text = f"FAIL from {answer.fails:.4g}{unit} on {sure}; no rate is proven to pass"
    elif answer.fails is None:
        text = f"PASS up to {answer.passes:.4g}{unit} {sure}; no rate is proven to fail"
    else:
        text = (
            f"PASS up to {answer.passes:.4g}{unit}, FAIL from {answer.fails:.4g}{unit}, each {sure}"
        )
    if answer.headroom is not None:
        text += f"; headroom at {answer.current:.4g}{unit}: {100 * answer.headroom:.0f} %"
    return f"{text}. It ended there: {answer.why}."
