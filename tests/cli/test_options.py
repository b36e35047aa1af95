"""Options in groups: a command has all of a group's or some, each with its own default."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from slo import options as o

TO = ("--target", "http://h:1/")


@dataclass(frozen=True, slots=True)
class Load:
    rate_per_s: o.Rate = None
    seconds: Annotated[float, o.time("How long.", "--duration")] = "30s"  # type: ignore[assignment]
    seed: Annotated[int, o.option("N", o.number(int, 0), "Of the schedule.")] = 1


@o.with_groups
def all_of(load: Load, name: str = "x") -> int:
    """Take all."""
    print(load, name)
    return 0


@o.with_groups
def some_of(load: Annotated[Load, o.only("rate_per_s", seconds="2m")], target: o.Target) -> int:
    """Take some."""
    print(load, target)
    return 0


@o.with_groups
def others_of(load: Annotated[Load, o.but(seed="7")]) -> int:
    """Take all, one of them otherwise."""
    print(load)
    return 0


def ran(command: o.Command, *arguments: str) -> None:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    typer.main.get_command(app).main(list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        (all_of, (), "Load(rate_per_s=None, seconds=30.0, seed=1) x"),
        (all_of, ("--rate", "90/m", "--name", "y"), "Load(rate_per_s=1.5, seconds=30.0, seed=1) y"),
        (some_of, TO, "Load(rate_per_s=None, seconds=120.0, seed=1) http://h:1"),
        (some_of, (*TO, "--duration", "1s"), "Load(rate_per_s=None, seconds=1.0, seed=1)"),
        (others_of, (), "Load(rate_per_s=None, seconds=30.0, seed=7)"),
    ],
)  # fmt: skip
def test_a_group_becomes_its_options(
    command: o.Command,
    arguments: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran(command, *arguments)
    assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*TO, "--seed", "3"), "No such option: --seed"),
        ((), "Missing parameter: target"),
        ((*TO, "--duration", "0s"), "must be more than 0s"),
    ],
)
def test_what_a_command_leaves_out_of_a_group_is_no_option_of_it(
    arguments: tuple[str, ...], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        ran(some_of, *arguments)


def test_a_group_has_no_options_but_its_own() -> None:
    with pytest.raises(ValueError, match="'speed'"):

        @o.with_groups
        def wrong(load: Annotated[Load, o.only("speed")]) -> int:
            return 0
