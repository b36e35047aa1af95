"""What the target said of itself by GET /info, as target.json keeps it."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from slo.rundir import TARGET, RunDirError, read_json


def info(directory: Path) -> Mapping[str, Any]:
    """The target's /info at the run's start; empty where there is none."""
    try:
        document = read_json(directory / TARGET)
    except RunDirError:  # the check of a run's files names it
        return {}
    start = document.get("start") if isinstance(document, dict) else None
    return start if isinstance(start, dict) else {}


def flat(
    value: Mapping[str, Any], without: Collection[str] = (), prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Its values, nested keys joined by dots; keys in `without` are left out at any depth."""
    for key, inner in value.items():
        if key in without:
            continue
        if isinstance(inner, dict):
            yield from flat(inner, without, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
