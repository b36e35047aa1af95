"""verdict.json: written beside a run, read back for its reports."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from slo.rundir import (
    VERDICT,
    read_json,
    refuse_unknown_schema,
    validated,
    write_json,
)
from slo.verdict import SCHEMA, Verdict

_VERDICT = TypeAdapter(Verdict)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of verdict.json; keys are added within a version, so that more may come."""
    schema = _VERDICT.json_schema()
    title = "Tailgate verdict.json"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"title": title}


def json_schema_text() -> str:
    """docs/verdict.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


def write_verdict(directory: Path, verdict: Verdict) -> None:
    """Write verdict.json, atomically."""
    write_json(directory / VERDICT, asdict(verdict))


def read_verdict(directory: Path) -> Verdict:
    """Read verdict.json.

    Raises:
        RunDirError: missing, cut off, of another schema, or no verdict; names file and key.
    """
    path = directory / VERDICT
    document = read_json(path)
    refuse_unknown_schema(path, document, SCHEMA)
    return validated(_VERDICT, document, str(path))
