"""How commands declare options: with a parser whose sentence is shown, alone or in groups.

A group is a dataclass whose fields are options: commands that take it have all of them, or some.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import typer

from slo import quantities

Command = Callable[..., int]
Number = TypeVar("Number", int, float)

_KINDS: dict[Callable[[str], object], str] = {int: "whole number", float: "number"}


def target(text: str) -> str:
    """The URL of a server, without a path."""
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


def a_thousandth_or_more(text: str) -> float:
    """A share of a whole, of 0.1 % at least."""
    return quantities.part(text, 0.001)


def growth(text: str) -> float:
    """A share by which something may grow: 0 % or more."""
    value = quantities.share(text)
    if value < 0:
        raise ValueError(f"{text!r} is negative; allowed: 0% or more")
    return value


def word(text: str) -> str:
    """A name that can be a folder's too."""
    if not text.strip(".") or not re.fullmatch(r"[\w.-]+", text):
        raise ValueError(f"{text!r} is no name; allowed: letters, digits, - _ .")
    return text


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser that takes these words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not known; allowed: {', '.join(allowed)}")
        return text

    return read


def number(
    kind: Callable[[str], Number], least: float, most: float = float("inf")
) -> Callable[[str], Number]:
    """A parser of numbers from `least` to `most`."""

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


def option(metavar: str, parse: Callable[[str], object], text: str, *names: str) -> Any:
    """An option with a value; its name is the parameter's, if none is given."""

    def read(written: str) -> object:
        try:
            return parse(written)
        except ValueError as error:  # its sentence; typer would show the value alone
            raise typer.BadParameter(str(error)) from None

    return typer.Option(*names, metavar=metavar, parser=read, help=text)


def time(text: str, *names: str) -> Any:
    """An option that is a duration above 0."""
    return option("TIME", quantities.positive_s, text, *names)


def rate(text: str, *names: str) -> Any:
    """An option that is a rate, or a number of users."""
    return option("RATE", quantities.rate_per_s, text, *names)


def count(text: str) -> Any:
    """An option that is a number of things, 1 or more."""
    return option("N", number(int, 1), text)


def file(text: str) -> Any:
    """An option that is a file."""
    return typer.Option(metavar="FILE", help=text)


Target = Annotated[str, option("URL", target, "Server under test, without a path.")]
Rate = Annotated[float | None, rate("Arrivals: 3/s, 90/m.", "--rate")]
Duration = Annotated[float | None, time("Length of the judged window: 30s, 10m.", "--duration")]
Timeout = Annotated[float | None, time("From due to the answer's end. Default: 60s.", "--timeout")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Default: runs/<UTC>-<label or mix>-<rate>.")
]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which options of a group a command has (None: all), and their defaults where they differ."""

    names: tuple[str, ...] | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)


def only(*names: str, **defaults: object) -> Chosen:
    """These options of a group, in `Annotated[Group, only(...)]`; a default is as one types it."""
    return Chosen((*names, *defaults), defaults)


def but(**defaults: object) -> Chosen:
    """All options of a group, some with another default."""
    return Chosen(None, defaults)


def typed(context: typer.Context, group: Any, *others: str) -> list[str]:
    """The options of a group, and some others, that stand on the command line."""
    names = {field.name for field in fields(group)} | set(others)
    sources = {one: context.get_parameter_source(one.name or "") for one in context.command.params}
    return [
        one.opts[0]
        for one, source in sources.items()
        if one.name in names and source is not None and source.name == "COMMANDLINE"
    ]


def with_groups(command: Command) -> Command:
    """A command with the options of each group in the place of the parameter that takes it."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for one in inspect.signature(command).parameters.values():
        group, *how = get_args(one.annotation) if _annotated(one) else (one.annotation,)
        if is_dataclass(group):
            mine = list(_options(group, how[0] if how else Chosen()))
            groups[one.name] = group, [option.name for option in mine]
            parameters += mine
        else:
            parameters.append(one.replace(kind=one.KEYWORD_ONLY))

    def with_options(**given: Any) -> int:
        for name, (group, options) in groups.items():
            given[name] = group(**{option: given.pop(option) for option in options})
        return command(**given)

    with_options.__doc__ = command.__doc__
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def _annotated(one: inspect.Parameter) -> bool:
    return get_origin(one.annotation) is Annotated


def _options(group: Any, chosen: Chosen) -> Iterator[inspect.Parameter]:
    known = {field.name: field for field in fields(group)}
    for name in known if chosen.names is None else sorted(chosen.names, key=list(known).index):
        default = chosen.defaults.get(name, known[name].default)
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=known[name].type
        )
