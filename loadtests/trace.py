"""Traces of real services, to be sent again: when each request came, and its tokens in and out.

Two public forms are read: the Azure LLM inference traces (CSV with TIMESTAMP, ContextTokens,
GeneratedTokens) and the Mooncake traces (JSON lines with timestamp in ms, input_length,
output_length).
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from loadtests.input_lengths import LEAST

# Names of the three columns, however a publisher capitalises them.
_TIMES = ("timestamp", "time")
_INPUTS = ("contexttokens", "input_length", "input_tokens")
_OUTPUTS = ("generatedtokens", "output_length", "output_tokens")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace; seconds from its first one."""

    at_s: float
    input_tokens: int
    output_tokens: int


@lru_cache(maxsize=2)
def trace_rows(path: str, rate_per_s: float = 0.0) -> tuple[TraceRow, ...]:
    """The rows of a trace file in order of time; a rate above 0 stretches time to that mean.

    Raises:
        ValueError: no such file, or a row that is none; names file and line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    rows = [_row(cells, f"{path}:{number}") for number, cells in _cells(path, lines)]
    if not rows:
        raise ValueError(f"{path}: no request in it")
    rows.sort(key=lambda row: row.at_s)
    first_s, took_s = rows[0].at_s, rows[-1].at_s - rows[0].at_s
    stretch = (len(rows) - 1) / took_s / rate_per_s if rate_per_s and took_s else 1.0
    return tuple(replace(row, at_s=round((row.at_s - first_s) * stretch, 6)) for row in rows)


def mean_rate(rows: tuple[TraceRow, ...], start_s: float, end_s: float) -> float:
    """Requests a second that a trace has between two moments."""
    return sum(start_s <= row.at_s < end_s for row in rows) / (end_s - start_s)


def _cells(path: str, lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    if lines and lines[0].lstrip().startswith("{"):
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, {str(k).lower(): v for k, v in json.loads(line).items()}
                except (ValueError, AttributeError):
                    raise ValueError(f"{path}:{number}: no JSON object") from None
        return
    for number, row in enumerate(csv.DictReader(lines), 2):
        yield number, {str(k).strip().lower(): v for k, v in row.items()}


def _row(cells: dict[str, Any], where: str) -> TraceRow:
    def found(names: tuple[str, ...]) -> Any:
        for name in names:
            if cells.get(name) not in (None, ""):
                return cells[name]
        raise ValueError(f"{where}: no {names[0]}; a trace has {', '.join(n[0] for n in _NAMES)}")

    try:
        came, tokens_in, tokens_out = (found(names) for names in _NAMES)
        return TraceRow(_seconds(came), max(LEAST, int(tokens_in)), max(1, int(tokens_out)))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from None
    except ValueError as error:
        said = str(error)
        raise ValueError(said if said.startswith(where) else f"{where}: {said}") from None


_NAMES = (_TIMES, _INPUTS, _OUTPUTS)


def _seconds(came: Any) -> float:
    """Mooncake's numbers are ms; Azure's are dates with seven digits of a second."""
    if isinstance(came, int | float):
        return came / 1e3
    day, _, fraction = str(came).strip().partition(".")
    digits = fraction.split("+")[0].rstrip("Z")
    return datetime.fromisoformat(f"{day}+00:00").timestamp() + float(f"0.{digits or 0}")
