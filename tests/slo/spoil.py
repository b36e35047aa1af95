"""Spoils synthetic run directories, one way each: what a bad run looks like on disk."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slo.rundir import Run, read_run, write_run

Spoil = Callable[[Path], None]


def in_run(**fields: object) -> Spoil:
    """Replace fields of run.json."""

    def spoil(directory: Path) -> None:
        write_run(directory, replace(read_run(directory), **fields))

    return spoil


def of_run(change: Callable[[Run], Run]) -> Spoil:
    """Change run.json by what it says."""
    return lambda directory: write_run(directory, change(read_run(directory)))


def counts(**fields: int) -> Spoil:
    """Replace counts in run.json."""
    return of_run(lambda run: replace(run, counts=replace(run.counts, **fields)))


def cut(name: str, characters: int = 20) -> Spoil:
    """Cut the end of a file off."""

    def spoil(directory: Path) -> None:
        text = (directory / name).read_text()
        (directory / name).write_text(text[:-characters])

    return spoil


def without(name: str) -> Spoil:
    """Take a file away."""
    return lambda directory: (directory / name).unlink()


def lines(name: str, change: Callable[[list[str]], list[str]]) -> Spoil:
    """Change a file by its lines."""

    def spoil(directory: Path) -> None:
        old = (directory / name).read_text().splitlines(keepends=True)
        (directory / name).write_text("".join(change(old)))

    return spoil


def target(change: Callable[[dict[str, dict[str, object]]], object]) -> Spoil:
    """Change target.json in place."""

    def spoil(directory: Path) -> None:
        document = json.loads((directory / "target.json").read_text())
        change(document)
        (directory / "target.json").write_text(json.dumps(document))

    return spoil
