"""Traces of real services, to be sent again: when each request came, and its tokens in and out.

Two public forms are read: the Azure LLM inference traces (CSV with TIMESTAMP, ContextTokens,
GeneratedTokens) and the Mooncake traces (JSON lines with timestamp in ms, input_length,
output_length, and in hash_ids what of a prompt stood in other prompts too).
"""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from loadtests.shared_prefix import BLOCK
from slo.input_lengths import LEAST

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
    blocks: tuple[int, ...] = ()  # names of its prompt's blocks of 512 tokens, in order


@lru_cache(maxsize=2)
def trace_rows(path: str, rate_per_s: float = 0.0) -> tuple[TraceRow, ...]:
    """The rows of a trace file in order of time; a rate above 0 stretches time to that mean.

    Raises:
        ValueError: no such file, or a row that is none; names file and line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
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


def shared_share(rows: tuple[TraceRow, ...], end_s: float) -> float:
    """How much of all prompts due before then had stood at the beginning of an earlier one."""
    seen: dict[int, int] = {}  # of each block, the most tokens that were sent
    total = shared = 0
    for row in rows:
        if row.at_s < end_s:
            total += row.input_tokens
            whole = True
            for at, block in enumerate(row.blocks):
                sent = min(BLOCK, max(0, row.input_tokens - LEAST - at * BLOCK))
                known = min(sent, seen.get(block, 0)) if whole else 0
                shared += known
                whole = known == BLOCK
                seen[block] = max(sent, seen.get(block, 0))
    return shared / total if total else 0.0


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
        came, *tokens = (found(names) for names in _NAMES)
        tokens_in, tokens_out = map(_tokens, _NAMES[1:], tokens)
        blocks = _blocks(cells.get("hash_ids"), tokens_in)
        return TraceRow(_seconds(came), max(LEAST, tokens_in), max(1, tokens_out), blocks)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    except ValueError as error:
        said = str(error)
        raise ValueError(said if said.startswith(where) else f"{where}: {said}") from None


def _tokens(names: tuple[str, ...], said: Any) -> int:
    try:
        if (tokens := int(said)) >= 0:
            return tokens
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{names[-1]} {str(said)[:60]} is no whole number of 0 or more")


def _blocks(ids: Any, tokens: int) -> tuple[int, ...]:
    if not ids:
        return ()
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise ValueError(f"hash_ids {str(ids)[:60]} is no list of whole numbers of 0 or more")
    if (most := -(-tokens // BLOCK)) < len(ids):
        raise ValueError(f"{len(ids)} hash_ids; {tokens} tokens have {most} blocks of {BLOCK}")
    return tuple(ids)


_NAMES = (_TIMES, _INPUTS, _OUTPUTS)


def _seconds(came: Any) -> float:
    """Mooncake's numbers are ms; Azure's are dates with seven digits of a second."""
    if isinstance(came, int | float):
        if not math.isfinite(came):
            raise ValueError(f"timestamp {came} is no time")
        return came / 1e3
    day, _, fraction = str(came).strip().partition(".")
    digits = fraction.split("+")[0].rstrip("Z")
    return datetime.fromisoformat(f"{day}+00:00").timestamp() + float(f"0.{digits or 0}")
