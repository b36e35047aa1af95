"""A user's own prompts, from a file: JSON lines, CSV, or ShareGPT's JSON.

JSON lines: {"prompt": "..."} or {"messages": [...]}, optionally with "max_tokens". CSV: a column
named prompt, optionally max_tokens. ShareGPT: a list of {"conversations": [{"from": "human",
"value": "..."}, ...]}; its human turns are the turns of a session.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

Message = dict[str, str]

_ASKS = ("human", "user")


@dataclass(frozen=True, slots=True)
class OwnPrompt:
    """What is sent: the new messages of each turn."""

    index: int
    turns: tuple[tuple[Message, ...], ...]
    max_tokens: int | None


def own_id(index: int, turn: int) -> str:
    """Name a turn of an own prompt: "own-41-0"."""
    return f"own-{index}-{turn}"


def own_messages(path: str, name: str) -> list[Message]:
    """The new messages of the turn with that id."""
    _, index, turn = name.split("-")
    return list(own_prompts(path)[int(index)].turns[int(turn)])


@lru_cache(maxsize=2)
def own_prompts(path: str) -> tuple[OwnPrompt, ...]:
    """All prompts of a file.

    Raises:
        ValueError: no such file, or an entry that is no prompt; names file and entry.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    found: list[OwnPrompt] = []
    for where, entry in _entries(path, text):
        turns = tuple(_turns(entry, where))
        if turns:  # a conversation without a question has nothing to send
            found.append(OwnPrompt(len(found), turns, _max_tokens(entry, where)))
    if not found:
        raise ValueError(f"{path}: no prompt in it")
    return tuple(found)


def _entries(path: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if Path(path).suffix.lower() == ".csv":
        csv.field_size_limit(10**7)
        reader = csv.DictReader(io.StringIO(text, newline=""))
        for row in reader:
            yield f"{path}:{reader.line_num}", {str(k).lower(): v for k, v in row.items()}
    elif text.lstrip()[:1] == "[":
        for number, entry in enumerate(_json(text, path), 1):
            yield f"{path}: entry {number}", _object(entry, f"{path}: entry {number}")
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield (
                    f"{path}:{number}",
                    _object(_json(line, f"{path}:{number}"), f"{path}:{number}"),
                )


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: no JSON: {error}") from None


def _object(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: no JSON object")
    return entry


def _turns(entry: dict[str, Any], where: str) -> Iterator[tuple[Message, ...]]:
    if isinstance(entry.get("conversations"), list):
        for part in entry["conversations"]:
            if _object(part, where).get("from") in _ASKS:
                yield ({"role": "user", "content": _text(part.get("value"), where)},)
    elif isinstance(entry.get("messages"), list):
        yield tuple(
            {
                "role": _text(_object(part, where).get("role"), where),
                "content": _text(part.get("content"), where),
            }
            for part in entry["messages"]
        )
    else:
        yield ({"role": "user", "content": _text(entry.get("prompt"), where)},)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: no prompt; write prompt, messages or conversations, see --help")
    return value


def _max_tokens(entry: dict[str, Any], where: str) -> int | None:
    value = entry.get("max_tokens")
    if value in (None, ""):
        return None
    if not str(value).isdecimal() or int(value) < 1:
        raise ValueError(f"{where}: max_tokens {value!r} is no whole number of 1 or more")
    return int(value)
