"""The options of a load run, added to Locust's own, and the plan that they make."""

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from loadtests.input_lengths import FORMS, LEAST, lengths
from loadtests.own_prompts import own_prompts
from loadtests.prompts import SCENARIOS
from loadtests.reasoning import MODES
from loadtests.receive_clock import KERNEL, PROCESS
from loadtests.schedule import OWN, Load
from loadtests.text_tokens import counter
from loadtests.trace import TraceRow, mean_rate, shared_share, trace_rows
from slo import arrival, quantities

AUTO = "auto"
DEFAULT_RATE = 3.0  # a second
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a load run to Locust's parser."""
    parser.prog = "locust"
    load = parser.add_argument_group("load (Tailgate)")
    add = load.add_argument
    add("--rate", type=_said(quantities.rate_per_s), help="arrivals: 3/s (the default), 90/m")
    add(
        "--duration",
        type=_said(quantities.positive_s),
        default="30s",
        help="length of the measured window",
    )
    add("--warmup", type=_said(quantities.duration_s), default="5s", help="sent, but not judged")
    add("--arrival", type=_arrival, default="poisson", metavar="PROCESS", help=arrival.FORMS)
    add("--mix", type=_mix, default="math=0.6,code=0.4", help="shares: math=0.6,code=0.4")
    add("--input-class", type=_lengths, default="mixed", help=f"prompt tokens: {FORMS}")
    add("--shared-prefix", type=_share, default=0.0, help="the same start of all prompts: 50%%")
    add("--prompts", metavar="FILE", help="your own: .jsonl, .csv or ShareGPT's .json")
    add("--turns", type=_whole(1), default=1, help="of a session; an arrival is a session's start")
    add("--think-time", type=_said(quantities.duration_s), default="0s", help="between turns")
    add("--seed", type=_whole(0), help="repeats a schedule and its prompts; drawn when not given")
    add("--max-tokens", type=_whole(1), default=256, help="longest answer")
    add("--temperature", type=_number(0.0, 2.0), help="the target's own when not given")
    add("--top-p", type=_number(0.0, 1.0), help="the target's own when not given")
    add("--ignore-eos", action="store_true", help="answers of exactly --max-tokens")
    add("--min-tokens", type=_whole(1), help="shortest answer, where the target knows it")
    add(
        "--timeout",
        type=_said(quantities.positive_s),
        default="60s",
        help="from due to the answer's end",
    )
    add("--max-in-flight", type=_whole(1), help="open requests; default rate x timeout")
    add("--max-requests", type=_whole(1), help="ceiling, beside the trial request")
    add("--max-total-tokens", type=_whole(1), help="ceiling on tokens in and out together")
    target = parser.add_argument_group("target (Tailgate)")
    add = target.add_argument
    add("--model", help="model name; default the first of /v1/models")
    add("--api-path", type=_path, default="/v1/chat/completions", help="chat completions")
    add("--api-key-env", metavar="NAME", help="environment variable that holds the API key")
    add("--tokenizer", metavar="PATH_OR_ID", help="counts answers that come without usage")
    add("--connections", choices=("reused", "fresh"), default="reused", help="fresh: one each")
    add("--receive-clock", choices=(KERNEL, PROCESS), default=KERNEL, help="who stamps packets")
    add("--reasoning", choices=(AUTO, *MODES), default=AUTO, help="how reasoning is marked")
    run = parser.add_argument_group("run directory (Tailgate)")
    add = run.add_argument
    add("--out", metavar="DIR", help="default runs/<UTC time>-<label>-<rate>")
    add("--label", default="", help="a name for a person")
    add("--store-answers", action="store_true", help="keep the texts, in answers.jsonl")
    add("--force", action="store_true", help="overwrite a run in --out")


def plan_of(options: Any, url: str | None, workers: int) -> Plan:
    """Make the plan of parsed options, whose seed is set.

    Raises:
        OptionError: no host, an option of Locust's that has another name here, no API key.
    """
    if options.run_time:
        raise OptionError("-t/--run-time would cut answers off; say --duration (and --warmup)")
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
    if process.has_rate and not process.trace and options.rate is not None:
        raise OptionError(f"--arrival {options.arrival} says how much is sent; leave --rate away")
    if process.kind == "spike" and process.spike_s >= options.duration:
        raise OptionError(f"--arrival {options.arrival}: the spike is no shorter than --duration")
    rate = options.rate or (0.0 if process.has_rate else DEFAULT_RATE)
    if process.has_rate and process.rates:
        rate = process.mean_rate(rate, options.duration)
    if (options.min_tokens or 0) > options.max_tokens and not process.trace:
        raise OptionError(f"--min-tokens is above --max-tokens, {options.max_tokens}")
    smallest = min(low for low, _ in lengths(options.input_class))
    own = (1 - options.shared_prefix) * smallest
    if options.shared_prefix and own and own < LEAST:
        raise OptionError(
            f"--shared-prefix leaves {own:.0f} of {smallest} tokens for the question, which takes"
            f" {LEAST}; name a longer --input-class, or 100%"
        )
    load = Load(
        arrival=options.arrival,
        rate_per_s=rate,
        warmup_s=options.warmup,
        duration_s=options.duration,
        mix={OWN: 1.0} if options.prompts else options.mix,
        input_class=options.input_class,
        max_tokens=options.max_tokens,
        seed=options.seed,
        turns=options.turns,
        think_s=options.think_time,
        shared_prefix=options.shared_prefix,
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


def _said(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Let argparse say our own sentence instead of "invalid value"."""

    def checked(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


@_said
def _arrival(text: str) -> str:
    arrival.parse(text)
    return text


@_said
def _lengths(text: str) -> str:
    lengths(text)
    return text


@_said
def _share(text: str) -> float:
    return round(quantities.part(text), 4)


@_said
def _mix(text: str) -> dict[str, float]:
    shares = quantities.mix(text)
    for name in shares:
        if name not in SCENARIOS:
            raise ValueError(f"{name!r} is no scenario; allowed: {', '.join(SCENARIOS)}")
    return shares


@_said
def _path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is no path; write /v1/chat/completions")
    return text


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and int(text) >= least):
            raise ValueError(f"{text!r} is no whole number of {least} or more")
        return int(text)

    return _said(read)


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise ValueError(f"{text!r} is no number from {least:g} to {most:g}")
        return number

    return _said(read)
