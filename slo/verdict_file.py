"""verdict.json: written beside a run, read back for its reports."""

from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from slo.rundir import (
    VERDICT,
    RunDirError,
    first_mistake,
    read_json,
    refuse_unknown_schema,
    write_json,
)
from slo.verdict import SCHEMA, Verdict

_VERDICT = TypeAdapter(Verdict)


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
    try:
        return _VERDICT.validate_python(document)
    except ValidationError as error:
        raise RunDirError(f"{path}: {first_mistake(error)}") from None
