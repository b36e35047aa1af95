"""The options of a load run, added to Locust's own."""

import argparse
import math
from collections.abc import Callable
from typing import Any

from loadtests.plan import AUTO, LONGEST_ANSWER
from loadtests.prompts import SCENARIOS
from loadtests.reasoning import MODES
from loadtests.receive_clock import KERNEL, PROCESS
from slo import arrival, quantities
from slo.input_lengths import FORMS, MIXED, lengths


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
    add("--mix", type=_mix, help="shares: math=0.6,code=0.4 (the default)")
    add("--input-class", type=_lengths, help=f"prompt tokens: {FORMS}; default {MIXED}")
    add("--shared-prefix", type=_share, help="the same start of all prompts: 50%%; default 0%%")
    add("--prompts", metavar="FILE", help="your own: .jsonl, .csv or ShareGPT's .json")
    add("--turns", type=_whole(1), help="of a session, which an arrival starts; default 1")
    add("--think-time", type=_said(quantities.duration_s), help="between turns; default 0s")
    add("--seed", type=_whole(0), help="repeats a schedule and its prompts; drawn when not given")
    add("--max-tokens", type=_whole(1), help=f"longest answer; default {LONGEST_ANSWER}")
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
