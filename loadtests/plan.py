"""What the options of a load run make together: its plan, or why they do not go together."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from loadtests.own_prompts import own_prompts
from loadtests.schedule import OWN, Load
from loadtests.text_tokens import counter
from loadtests.trace import TraceRow, mean_rate, shared_share, trace_rows
from slo import arrival
from slo.input_lengths import LEAST, MIXED, lengths

AUTO = "auto"
DEFAULT_RATE = 3.0  # a second
DEFAULT_MIX = {"math": 0.6, "code": 0.4}
LONGEST_ANSWER = 256  # tokens
OF_SLO_YAML = ("--mix", "--input-class", "--max-tokens")  # what its load can fill in of these
MOST_OF_TRACE = 10_000  # in flight, of a trace, whose bursts are not known


class OptionError(Exception):
    """Options that do not go together; one line that says what is allowed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run needs to know beside the target's answers."""

    load: Load
    url: str
    api_path: str
    model: str | None
    api_key: str | None
    label: str
    out: str | None
    force: bool
    timeout_s: float
    max_in_flight: int
    temperature: float | None
    top_p: float | None
    reasoning: str  # one of reasoning.MODES, or AUTO
    ignore_eos: bool
    min_tokens: int | None
    tokenizer: str | None
    fresh_connections: bool
    receive_clock: str
    store_answers: bool
    max_requests: int | None
    max_total_tokens: int | None
    workers: int


def plan_of(options: Any, url: str | None, workers: int) -> Plan:
    """Make the plan of parsed options, whose seed is set.

    Raises:
        OptionError: no host, an option of Locust's that has another name here, no API key.
    """
    if options.run_time:
        raise OptionError("-t/--run-time would cut answers off; say --duration (and --warmup)")
    if getattr(options, "tags", None) or getattr(options, "exclude_tags", None):
        raise OptionError("--tags, --exclude-tags: there is one task, the schedule; say --mix")
    if not url:
        raise OptionError("--host is missing; name the target: --host http://127.0.0.1:8000")
    if not _is_url(url):
        raise OptionError(f"--host {url!r} is no URL; write http://HOST:PORT")
    api_key = None
    if options.api_key_env:
        api_key = os.environ.get(options.api_key_env)
        if not api_key:
            raise OptionError(f"--api-key-env: the environment has no {options.api_key_env}")
    load = _load(options)
    cap = options.max_in_flight or max(workers, _usually_in_flight(load, options.timeout))
    if cap < workers:
        raise OptionError(f"--max-in-flight {cap} is less than one for each of {workers} workers")
    try:
        counter(options.tokenizer)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return Plan(
        load=load,
        url=url.rstrip("/"),
        api_path=options.api_path,
        model=options.model,
        api_key=api_key,
        label=options.label,
        out=options.out,
        force=options.force,
        timeout_s=options.timeout,
        max_in_flight=cap,
        temperature=options.temperature,
        top_p=options.top_p,
        reasoning=options.reasoning,
        ignore_eos=options.ignore_eos,
        min_tokens=options.min_tokens,
        tokenizer=options.tokenizer,
        fresh_connections=options.connections == "fresh",
        receive_clock=options.receive_clock,
        store_answers=options.store_answers,
        max_requests=options.max_requests,
        max_total_tokens=options.max_total_tokens,
        workers=workers,
    )


def _load(options: Any) -> Load:
    process = arrival.parse(options.arrival)
    for option, why in _without_effect(options, process):
        if getattr(options, option.lstrip("-").replace("-", "_")) is not None:
            also = " (or slo.yaml's load)" if option in OF_SLO_YAML else ""
            raise OptionError(f"{option}{also}: {why}; leave one of them away")
    max_tokens = options.max_tokens or LONGEST_ANSWER
    shared = options.shared_prefix or 0.0
    if process.has_rate and not process.trace and options.rate is not None:
        raise OptionError(f"--arrival {options.arrival} says how much is sent; leave --rate away")
    if process.kind == "spike" and process.spike_s >= options.duration:
        raise OptionError(f"--arrival {options.arrival}: the spike is no shorter than --duration")
    rate = options.rate or (0.0 if process.has_rate else DEFAULT_RATE)
    if process.has_rate and process.rates:
        rate = process.mean_rate(rate, options.duration)
    if (options.min_tokens or 0) > max_tokens and not process.trace:
        raise OptionError(f"--min-tokens is above --max-tokens, {max_tokens}")
    input_class = options.input_class or MIXED
    smallest = min(low for low, _ in lengths(input_class))
    own = (1 - shared) * smallest
    if not process.trace and shared and own and own < LEAST:
        raise OptionError(
            f"--shared-prefix leaves {own:.0f} of {smallest} tokens for the question, which takes"
            f" {LEAST}; name a longer --input-class, or 100%"
        )
    load = Load(
        arrival=options.arrival,
        rate_per_s=rate,
        warmup_s=options.warmup,
        duration_s=options.duration,
        mix={OWN: 1.0} if options.prompts else options.mix or DEFAULT_MIX,
        input_class=input_class,
        max_tokens=max_tokens,
        seed=options.seed,
        turns=options.turns or 1,
        think_s=options.think_time or 0.0,
        shared_prefix=shared,
        prompts=options.prompts,
    )
    try:
        if options.prompts:
            own_prompts(options.prompts)
        if process.trace:
            rows = trace_rows(process.trace, rate)
            found = mean_rate(rows, load.warmup_s, load.end_s)
            load = replace(load, rate_per_s=round(rate or found, 6), stretched=rate > 0)
            return _with_trace_blocks(load, rows)
    except ValueError as error:
        raise OptionError(str(error)) from None
    return load


def _without_effect(options: Any, process: arrival.Process) -> Iterator[tuple[str, str]]:
    """Options that the others leave nothing to say, and why."""
    if options.prompts:
        for option in ("--mix", "--input-class", "--shared-prefix"):
            yield option, "--prompts says what is asked"
    if process.trace:
        yield "--input-class", "the trace says how long prompts are"
        yield "--max-tokens", "the trace says how long answers are"
        yield "--turns", "each row of a trace is a request of its own"
    if (options.turns or 1) == 1:
        yield "--think-time", "a session has one turn unless --turns says more"


def _with_trace_blocks(load: Load, rows: tuple[TraceRow, ...]) -> Load:
    """With what the trace says of shared beginnings, where the prompts are not the user's own."""
    if load.prompts or not any(row.blocks for row in rows):
        return load
    if load.shared_prefix:
        raise OptionError("--shared-prefix: the trace's hash_ids say what is shared; leave it away")
    return replace(load, trace_shared=round(shared_share(rows, load.end_s), 4))


def _usually_in_flight(load: Load, timeout_s: float) -> int:
    """As many as can be open when every request takes as long as it may."""
    process = load.process
    if process.closed:
        return process.slots
    if process.trace:
        return MOST_OF_TRACE
    parts = process.segments(load.rate_per_s, load.warmup_s, load.duration_s)
    peak = max(max(part.first, part.last) for part in parts)
    return math.ceil(peak * timeout_s * load.turns)


def _is_url(text: str) -> bool:
    parts = urlsplit(text)
    try:
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False
