"""The options of `slo run` as typer reads them, each declared once with its parser and help."""

import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from slo import arrival as arrival_process
from slo import quantities
from slo.ending import UsageError
from slo.objectives import Load

T = TypeVar("T")
Number = TypeVar("Number", int, float)

# Each worker is a process of about 100 MB, and each arrival is planned in memory and on disk: more
# than these is a slip of the finger that would take the machine with it.
MOST_WORKERS = max(16, 4 * (os.cpu_count() or 1))
MOST_ARRIVALS = 10_000_000

_KINDS: dict[Callable[[str], object], str] = {int: "whole number", float: "number"}


def _parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let a parser's sentence through to the usage error, which would else show the value alone."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def _above_0_s(text: str) -> float:
    seconds = quantities.duration_s(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} is too short; it must be more than 0s")
    return seconds


def _sidecar(text: str) -> str:
    if text not in ("local", "off") and not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is no sidecar; allowed: local, off, http://HOST:PORT")
    return text.rstrip("/")


def target(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https") or not rest.strip("/"):
        raise ValueError(f"{text!r} is no target; write http://HOST:PORT or https://HOST")
    try:
        parts = urlsplit(text)
        known = parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{text!r} is no target; a port is 1 to 65535, an IPv6 host as [::1]")
    if parts.username or parts.password:  # the URL is kept in run.json and shown in reports
        host = parts.netloc.rpartition("@")[2]
        raise ValueError(f"a password does not belong in a URL ({host}); name it by --api-key-env")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} holds a query or a fragment; leave them away")
    if rest.rstrip("/").endswith("/v1"):
        raise ValueError(f"{text!r} names the API's path too; leave /v1 away")
    return text.rstrip("/")


def _arrival(text: str) -> str:
    arrival_process.parse(text)
    return text


def _lengths(text: str) -> str:
    if text != "mixed" and not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise ValueError(f"{text!r} is no prompt length; write 512, 128,2000, 200-4000 or mixed")
    return text


def _share(text: str) -> float:
    value = quantities.share(text)
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is no share; write 0% to 100%")
    return value


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not known; allowed: {', '.join(allowed)}")
        return text

    return read


def _number(
    kind: Callable[[str], Number], least: float, most: float = float("inf")
) -> Callable[[str], Number]:
    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is no {_KINDS[kind]}") from None
        if not least <= value <= most:  # also turns a nan away
            bounds = f"{least:g} or more" if most == float("inf") else f"{least:g} to {most:g}"
            raise ValueError(f"{text!r} is out of range; allowed: {bounds}")
        return value

    return read


def _option(metavar: str, parse: Callable[[str], object], text: str) -> object:
    return typer.Option(metavar=metavar, parser=_parsed(parse), help=text)


_TIME = _above_0_s
_COUNT = _number(int, 1)

Target = Annotated[str, _option("URL", target, "Server under test, without a path.")]
Model = Annotated[str | None, typer.Option(help="Default: the first of the target's /v1/models.")]
Rate = Annotated[float | None, _option("RATE", quantities.rate_per_s, "Arrivals: 3/s, 90/m.")]
Duration = Annotated[float | None, _option("TIME", _TIME, "Length of the judged window: 30s, 10m.")]
Warmup = Annotated[
    float | None,
    _option("TIME", quantities.duration_s, "Load before it, not judged. Default: 5s."),
]
Arrival = Annotated[
    str | None,
    _option("PROCESS", _arrival, f"Default: poisson. Allowed: {arrival_process.FORMS}."),
]
Mix = Annotated[
    dict[str, float] | None, _option("MIX", quantities.mix, "Shares; default: math=0.6,code=0.4.")
]
InputClass = Annotated[
    str | None,
    _option(
        "TOKENS",
        _lengths,
        "Of prompts: 128, 512, 896, mixed (the default: these three), or 2000, or 200-4000.",
    ),
]
MaxTokens = Annotated[int | None, _option("N", _COUNT, "Longest answer. Default: 256.")]
MinTokens = Annotated[
    int | None, _option("N", _COUNT, "Shortest answer, where the target knows min_tokens.")
]
SharedPrefix = Annotated[
    float | None, _option("SHARE", _share, "So much of each prompt is the same: 50%. Default: 0%.")
]
Prompts = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Your own prompts: .jsonl, .csv, or ShareGPT's .json."),
]
Turns = Annotated[
    int | None, _option("N", _COUNT, "Of a session; an arrival is a session's start. Default: 1.")
]
ThinkTime = Annotated[
    float | None, _option("TIME", quantities.duration_s, "From one turn's end to the next one.")
]
Tokenizer = Annotated[
    str | None,
    typer.Option(metavar="PATH_OR_ID", help="Counts the tokens of answers, beside their usage."),
]
Connections = Annotated[
    str | None,
    _option("HOW", _one_of("reused", "fresh"), "reused (the default), or fresh: one each request."),
]
ReceiveClock = Annotated[
    str | None,
    _option("WHOSE", _one_of("kernel", "process"), "Who stamps what comes. Default: kernel."),
]
ExpectWorkers = Annotated[
    int | None, _option("N", _COUNT, "Load from so many `locust --worker` of any machine instead.")
]
WorkerPort = Annotated[int, _option("PORT", _number(int, 1, 65535), "Where those workers join.")]
Temperature = Annotated[
    float | None, _option("X", _number(float, 0, 2), "Default: the target's own.")
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="X",
        parser=_parsed(_number(float, 0, 1)),
        help="Default: the target's own.",
    ),
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Ask for exactly --max-tokens tokens.")
]
Reasoning = Annotated[
    str | None,
    _option(
        "MODE",
        _one_of("auto", "tag", "prompt-opened", "field", "none"),
        "auto (the default: asked once), tag, prompt-opened, field, none.",
    ),
]
Seed = Annotated[
    int | None, _option("N", _number(int, 0), "Of schedule and prompts. Default: drawn, and kept.")
]
Workers = Annotated[int, _option("N", _number(int, 1, MOST_WORKERS), "Load processes.")]
Timeout = Annotated[
    float | None, _option("TIME", _TIME, "From due to the answer's end. Default: 60s.")
]
MaxInFlight = Annotated[
    int | None, _option("N", _COUNT, "Open requests, at most. Default: rate x timeout.")
]
MaxRequests = Annotated[int | None, _option("N", _COUNT, "Ceiling for paid endpoints.")]
MaxTotalTokens = Annotated[int | None, _option("N", _COUNT, "Ceiling for paid endpoints.")]
ApiKeyEnv = Annotated[
    str | None, typer.Option(metavar="NAME", help="Environment variable that holds the API key.")
]
ReadyTimeout = Annotated[float, _option("TIME", _TIME, "How long to wait for the target.")]
Sidecar = Annotated[str, _option("URL|local|off", _sidecar, "Where GPU samples come from.")]
SloFile = Annotated[
    Path | None,
    typer.Option("--slo", metavar="FILE", help="Judge after the run; its load: fills in options."),
]
Label = Annotated[str | None, typer.Option(help="A word for the run, also in its default --out.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Default: runs/<UTC>-<label or mix>-<rate>.")
]
StoreAnswers = Annotated[bool, typer.Option("--store-answers", help="Keep texts: answers.jsonl.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the run that --out holds.")]

OptionalTarget = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="URL", parser=_parsed(target), help="Load this server, and judge that."
    ),
]
Budget = Annotated[
    float | None, _option("TIME", _TIME, "End the load after so long, and judge what is there.")
]
Inconclusive = Annotated[
    str | None,
    _option(
        "WORD", _one_of("fail", "pass", "warn"), "fail (1), pass (0), warn (0). Default: exit 3."
    ),
]
Annotations = Annotated[
    str | None, _option("NAME", _one_of("github"), "Also print workflow commands: github.")
]

tool = _parsed(_one_of("vllm", "guidellm", "aiperf", "locust"))  # of `slo import`


def filled_in(asked: Load, wanted: Load) -> dict[str, Any]:
    """What was asked for, and for the rest what slo.yaml says of its load.

    Raises:
        UsageError: neither says the rate, or the duration; or they make more than can be planned.
    """
    told = {name: value for name, value in asdict(asked).items() if value is not None}
    values = asdict(wanted) | told
    process = arrival_process.parse(values["arrival"] or "poisson")
    if process.has_rate:
        values["rate_per_s"] = asked.rate_per_s  # the process says how much is sent
        needed = [("duration_s", "duration")]
    else:
        needed = [("rate_per_s", "rate"), ("duration_s", "duration")]
    for name, flag in needed:
        if values[name] is None:
            raise UsageError(f"--{flag} is missing; give it, or a --slo file with load: {flag}")
    if not (process.closed or process.trace):
        rate, warmup_s = values["rate_per_s"] or 0.0, values["warmup_s"] or 0.0
        _bounded(process.segments(rate, warmup_s, values["duration_s"]))
    return values


def _bounded(segments: tuple[arrival_process.Segment, ...]) -> None:
    count = arrival_process.expected(segments, math.inf)
    if count > MOST_ARRIVALS:
        much = f"this rate for so long is {count:.3g} requests"
        raise UsageError(f"--rate, --duration: {much}; allowed: {MOST_ARRIVALS:,} in a run")
