"""Options of the commands that probe again and again: capacity, sweep, nightly, soak."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from slo import quantities

T = TypeVar("T")


def told(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let a parser's sentence through to the usage error."""

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


def _part(text: str) -> float:
    value = quantities.share(text)
    if not 0.001 <= value <= 1:
        raise ValueError(f"{text!r} is out of range; allowed: 0.1% to 100%")
    return value


def level(flag: str, text: str) -> Any:
    """An option that is a rate, or a number of users."""
    return typer.Option(flag, metavar="RATE", parser=told(quantities.rate_per_s), help=text)


def time(flag: str, text: str) -> Any:
    """An option that is a duration above 0."""
    return typer.Option(flag, metavar="TIME", parser=told(_above_0_s), help=text)


def part(flag: str, text: str) -> Any:
    """An option that is a share above 0."""
    return typer.Option(flag, metavar="X%", parser=told(_part), help=text)


Over = Annotated[
    str,
    typer.Option(metavar="NAME", help="rate, or concurrency: users who wait for their answers."),
]
Low = Annotated[
    float | None, level("--min", "Lowest load to ask. Default: far below --slo's rate, or 1.")
]
High = Annotated[float | None, level("--max", "Highest load to ask. Default: no end.")]
Current = Annotated[float | None, level("--current", "Today's load, for the headroom.")]
Resolution = Annotated[float, part("--resolution", "The search ends with its ends so close.")]
Budget = Annotated[float, time("--budget", "For all probes together, cool-down included.")]
Shortest = Annotated[float, time("--shortest", "The shortest probe.")]
Cooldown = Annotated[float, time("--cooldown", "How long the target's queue may take to empty.")]
SloFile = Annotated[Path, typer.Option("--slo", metavar="FILE", help="The promise to keep.")]
