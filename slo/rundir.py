"""The run directory: where the load engine, the GPU sidecar and the checker meet.

One writer a file. Finished files are written beside and renamed, so that a reader never sees half
of one; logs are appended line by line, so that a crash costs at most the last line.
"""

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from slo.record import Arrival, Record
from slo.run import SCHEMA as SCHEMA
from slo.run import Client as Client
from slo.run import Counts as Counts
from slo.run import Imported as Imported
from slo.run import Lateness as Lateness
from slo.run import Run as Run
from slo.run import Stopped as Stopped
from slo.run import WorkerInfo as WorkerInfo

RUN = "run.json"
SCHEDULE = "schedule.csv"
REQUESTS, LATENCY = "requests.jsonl", "latency.hlog"
ANSWERS, CHECKS, GRADES = "answers.jsonl", "checks.jsonl", "grades.jsonl"
TARGET = "target.json"
GPU, SERVER = "gpu.jsonl", "server.jsonl"
VERDICT = "verdict.json"
# What a run's folder holds: --force removes these and nothing else that lies there.
OF_A_RUN = (RUN, SCHEDULE, REQUESTS, LATENCY, ANSWERS, CHECKS, GRADES, TARGET, GPU, SERVER, VERDICT)
DERIVED = ("report.html", "report.md", "junit.xml", "locust.log", "sidecar.log", "target.log")

T = TypeVar("T")


class RunDirError(Exception):
    """A run directory that cannot be read or written; says which file and what is wrong."""


_RUN = TypeAdapter(Run)
_RECORD = TypeAdapter(Record)


def create(path: Path, *, force: bool = False) -> Path:
    """Make a run directory; one that holds a run is refused, or rid of it if forced."""
    try:
        if (path / RUN).exists() or (path / REQUESTS).exists():
            if not force:
                why = "holds a run already; name another --out, or --force where there is one"
                raise RunDirError(f"{path}: {why}")
            for name in (*OF_A_RUN, *DERIVED):
                (path / name).unlink(missing_ok=True)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"{path}: cannot make the run directory: {error.strerror}") from None
    return path


def name_of_load(
    label: str | None, mix: Iterable[str], rate_per_s: float | None, arrival: str
) -> str:
    """How a run is called after its load: by label or mix, and by rate or process."""
    what = re.sub(r"[^\w.-]+", "-", label or "-".join(mix)).strip("-") or "load"
    return f"{what}-{rate_per_s:.4g}qps" if rate_per_s else f"{what}-{arrival.split(':')[0]}"


def default_directory(what: str, now: datetime) -> Path:
    """Where a run lies that was given no --out: under the working directory, sorted by time."""
    return Path("runs") / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{what}"


def write_atomic(path: Path, text: str) -> None:
    """Write a finished file beside its place, then rename it; a device or a pipe is written to."""
    if path.exists() and not path.is_file():  # a rename would put a file in the place of /dev/null
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_json(path: Path, value: object) -> None:
    """Write one JSON document, atomically."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_run(directory: Path, run: Run) -> None:
    """Write run.json."""
    write_json(directory / RUN, asdict(run))


def read_run(directory: Path) -> Run:
    """Read run.json.

    Raises:
        RunDirError: missing, cut off, of another schema, or with a key missing or of a wrong type.
    """
    if not directory.is_dir():
        raise RunDirError(f"{directory}: no such run directory")
    path = directory / RUN
    document = read_json(path)
    refuse_unknown_schema(path, document, SCHEMA)
    return validated(_RUN, document, str(path))


def write_schedule(directory: Path, arrivals: Iterable[Arrival]) -> None:
    """Write schedule.csv: what was intended."""
    names = [field.name for field in fields(Arrival)]
    path = directory / SCHEDULE
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for arrival in arrivals:
            writer.writerow([_cell(getattr(arrival, name)) for name in names])
    beside.replace(path)


_ARRIVAL = TypeAdapter(Arrival)


def read_schedule(directory: Path) -> Iterator[Arrival]:
    """Read schedule.csv row by row.

    Raises:
        RunDirError: missing, a column missing, or a value of a wrong type; names file and line.
    """
    path = directory / SCHEDULE
    wanted = [field.name for field in fields(Arrival)]
    with _open(path) as file:
        reader = csv.DictReader(file)
        missing = [name for name in wanted if name not in (reader.fieldnames or ())]
        if missing:
            raise RunDirError(f"{path}:1: column {missing[0]} is missing")
        for row in reader:
            cells = {name: row[name] if row[name] != "" else None for name in wanted}
            yield validated(_ARRIVAL, cells, f"{path}:{reader.line_num}")


def read_records(directory: Path) -> Iterator[Record]:
    """Read requests.jsonl line by line.

    Raises:
        RunDirError: missing, or a line that is cut off or no record; names file and line.
    """
    path = directory / REQUESTS
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                raise RunDirError(f"{path}:{number}: the last line is cut off")
            try:
                yield _RECORD.validate_json(line)
            except ValidationError as error:
                raise RunDirError(f"{path}:{number}: {first_mistake(error)}") from None


def read_lines(path: Path, *, whole: bool = False) -> Iterator[dict[str, Any]]:
    """Read an append-only JSON Lines log; a last line that a crash cut off is left out.

    A `whole` log has no such line.

    Raises:
        RunDirError: missing, or a line that is no JSON; names file and line.
    """
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                if not line.endswith("\n") and not whole:
                    return
                raise RunDirError(f"{path}:{number}: no JSON: {error.msg}") from None
            except (ValueError, RecursionError) as error:
                raise RunDirError(f"{path}:{number}: no JSON for us: {error}") from None


def read_json(path: Path) -> Any:
    """Read one JSON document.

    Raises:
        RunDirError: missing or cut off; names the file.
    """
    with _open(path) as file:
        try:
            return json.load(file)
        except json.JSONDecodeError as error:
            raise RunDirError(f"{path}:{error.lineno}: cut off or no JSON: {error.msg}") from None
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:  # a number too long, or nested too deep
            raise RunDirError(f"{path}: no JSON for us: {error}") from None


def refuse_unknown_schema(path: Path, document: Any, known: str) -> None:
    """Refuse another major version by name; within a version, keys are only added."""
    found = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(found, str) or found.split(".")[0] != known.split(".")[0]:
        raise RunDirError(f"{path}: schema {found!r} is unknown here; this Tailgate reads {known}")


def first_mistake(error: ValidationError) -> str:
    """Say the first mistake that pydantic found in a line: key, what is wrong, value."""
    mistake = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in mistake["loc"]) or "the line"
    value = repr(mistake.get("input"))
    return f"{key}: {mistake['msg']}, not {value[:80]}"


def validated(adapter: TypeAdapter[T], document: object, where: str) -> T:
    """A document as what it is to be.

    Raises:
        RunDirError: it is none; names the place and the first mistake.
    """
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        raise RunDirError(f"{where}: {first_mistake(error)}") from None


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    try:
        with path.open(encoding="utf-8", newline="" if path.suffix == ".csv" else None) as file:
            yield file
    except FileNotFoundError:
        raise RunDirError(f"{path}: missing") from None
    except UnicodeDecodeError as error:
        raise RunDirError(f"{path}: is no UTF-8 text: {error.reason}") from None
    except csv.Error as error:
        raise RunDirError(f"{path}: is no CSV: {error}") from None
    except OSError as error:
        raise RunDirError(f"{path}: {error.strerror}") from None


def _cell(value: object) -> object:
    if value is None:
        return ""
    return round(value, 6) if isinstance(value, float) else value
