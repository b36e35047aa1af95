"""Baselines by name: which run a name stands for. Only a run that passed can be one."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from slo.ending import UsageError
from slo.rundir import (
    RUN,
    RunDirError,
    read_json,
    read_records,
    read_run,
    validated,
    write_json,
)
from slo.verdict import Result
from slo.verdict_file import read_verdict

if TYPE_CHECKING:  # it loads scipy, which is slow to start
    from slo.beside import Baseline


@dataclass(frozen=True, slots=True)
class Named:
    """One baseline in the store."""

    run: str  # the run's directory
    run_id: str
    service: str
    set_at: str


_STORE = TypeAdapter(dict[str, Named])


def read_store(store: Path) -> dict[str, Named]:
    """All baselines by name; none where there is no store.

    Raises:
        UsageError: a store that cannot be read.
    """
    if not store.exists():
        return {}
    try:
        return validated(_STORE, read_json(store), str(store))
    except RunDirError as error:
        raise UsageError(str(error)) from None


def set_baseline(name: str, run: Path, store: Path) -> Named:
    """Let a name stand for a run.

    Raises:
        UsageError: the run did not pass, was not judged, or cannot be read any more.
    """
    why = _why_not(run)
    if why:
        raise UsageError(f"{run}: {why}; only a run that passed can be a baseline")
    try:
        for _ in read_records(run):
            pass
    except RunDirError as error:
        raise UsageError(str(error)) from None
    verdict = read_verdict(run)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    named = Named(str(run.resolve()), read_run(run).id, verdict.service, now)
    store.parent.mkdir(parents=True, exist_ok=True)
    known = read_store(store) | {name: named}
    write_json(store, {key: asdict(value) for key, value in known.items()})
    return named


def find(name: str | None, store: Path) -> "Baseline | None":
    """The baseline of that name, or in that run directory; None where none is named.

    Raises:
        UsageError: a store that cannot be read.
    """
    if name is None:
        return None
    from slo.beside import Baseline
    from slo.measurements import collect

    named = read_store(store).get(name)
    run = Path(named.run if named else name)
    if named is None and not (run / RUN).exists():
        return Baseline(name, None, f"there is no baseline {name}")
    why = _why_not(run)
    if why:
        return Baseline(name, None, f"{name} ({run}): {why}")
    try:
        loaded = read_run(run)
        if named and loaded.id != named.run_id:
            return Baseline(name, None, f"{name} ({run}): holds another run, {loaded.id}")
        return Baseline(name, collect(read_records(run), loaded))
    except RunDirError as error:
        return Baseline(name, None, str(error))


def _why_not(run: Path) -> str | None:
    if not run.is_dir():
        return "no such run directory"
    try:
        result = read_verdict(run).result
    except RunDirError as error:
        return f"it was not judged: {error}"
    return None if result is Result.PASS else f"its verdict is {result}"
