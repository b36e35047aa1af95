"""Runs of the open loop in the test's own process: small plans, and the outcomes they lead to."""

import time
from dataclasses import replace
from typing import Any

from loadtests.open_loop import OpenLoop
from loadtests.outcome import Outcome
from loadtests.plan import Plan
from loadtests.schedule import Load

LOAD = Load(
    arrival="constant",
    rate_per_s=1.0,
    warmup_s=0.0,
    duration_s=1.0,
    mix={"math": 1.0},
    input_class="128",
    max_tokens=16,
    seed=5,
)


def plan(url: str, path: str = "/ok", **changes: Any) -> Plan:
    """A plan of one request, with changes to it or to its load."""
    load = {name: changes.pop(name) for name in tuple(changes) if hasattr(LOAD, name)}
    whole = Plan(
        load=replace(LOAD, **load),
        url=url,
        api_path=path,
        model="m",
        api_key=None,
        label="",
        out=None,
        force=False,
        timeout_s=5.0,
        max_in_flight=100,
        temperature=None,
        top_p=None,
        reasoning="none",
        ignore_eos=False,
        min_tokens=None,
        tokenizer=None,
        fresh_connections=False,
        receive_clock="kernel",
        store_answers=False,
        max_requests=None,
        max_total_tokens=None,
        workers=1,
    )
    return replace(whole, **changes)


def outcomes(wanted: Plan, *, late_s: float = 0.0) -> tuple[list[Outcome], OpenLoop]:
    """Run a plan whose start lies so far back; its outcomes in the order in which they ended."""
    ended: list[Outcome] = []
    t0_ns = time.perf_counter_ns() + round((0.02 - late_s) * 1e9)
    loop = OpenLoop(wanted, 0, t0_ns, ended.append)
    loop.run()
    return ended, loop


def one(wanted: Plan) -> Outcome:
    """The only outcome of a plan of one request."""
    [ended], _ = outcomes(wanted)
    return ended
