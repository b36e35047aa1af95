"""Where commands meet the terminal and the files that they are told of."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from slo.ending import UsageError

LOG_WIDTH = 200


def stderr() -> Console:
    """The console that progress goes to."""
    return Console(stderr=True)


def stdout() -> Console:
    """The console that verdicts go to; in a log a folded path is one that nobody can copy."""
    columns = os.environ.get("COLUMNS")
    known = columns != "0"  # as some terminals say that know no size
    folds = known and (sys.stdout.isatty() or columns is not None)
    return Console(width=None if folds else LOG_WIDTH)


def existing(directory: Path) -> Path:
    """A directory that is there.

    Raises:
        UsageError: it is not.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such run directory")
    return directory


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes a file where the user said.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
