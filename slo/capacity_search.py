"""The search: ask for a probe, keep it on disk, decide the next one, until there is an answer.

What is kept is all that decides: a search that was interrupted goes on from its file.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from slo.capacity import Probe, bounds, usable
from slo.capacity_plan import Ask, Ends, Limits, Stop, next_step
from slo.rundir import RunDirError, read_json, refuse_unknown_schema, validated, write_json
from slo.verdict import EXIT_CODE, Result

SCHEMA = "1.0"
FILE = "capacity.json"


@dataclass(frozen=True, slots=True)
class Knee:
    """What bounds the server where it breaks: the diagnosis of the nearest probe that has one."""

    word: str
    sentence: str
    next_step: str
    rate: float
    directory: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The interval, and why it ends there."""

    passes: float | None  # the highest rate with PASS
    fails: float | None  # the lowest rate with FAIL
    confidence: float
    reason: Ends
    why: str
    knee: Knee | None = None
    current: float | None = None  # the rate of today, where it was told
    headroom: float | None = None  # (passes - current) / current

    @property
    def exit_code(self) -> int:
        """0 where a rate passes; else as a verdict that fails, says nothing or cannot be had."""
        if self.passes is not None:
            return EXIT_CODE[Result.PASS]
        if self.reason == "not measurable":
            return EXIT_CODE[Result.INVALID]
        return EXIT_CODE[Result.FAIL if self.fails is not None else Result.INCONCLUSIVE]


@dataclass(frozen=True, slots=True)
class Search:
    """capacity.json. `asked` is what the probes depend on; one that asks else does not go on."""

    asked: dict[str, Any]
    limits: Limits
    probes: tuple[Probe, ...] = ()
    answer: Answer | None = None
    seed: int = 0
    started_at: str = ""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA


_SEARCH = TypeAdapter(Search)


def write_search(directory: Path, search: Search) -> None:
    """Write capacity.json, atomically."""
    document = asdict(search)
    limits = document["limits"]
    document["limits"] = {k: None if v == float("inf") else v for k, v in limits.items()}
    write_json(directory / FILE, document)


def read_search(directory: Path) -> Search:
    """Read capacity.json.

    Raises:
        RunDirError: missing, cut off, of another schema, or no search; names file and key.
    """
    path = directory / FILE
    document = read_json(path)
    refuse_unknown_schema(path, document, SCHEMA)
    try:
        for key in ("high", "budget_s", "budget_requests"):
            if document["limits"][key] is None:
                document["limits"][key] = float("inf")
    except (KeyError, TypeError):
        raise RunDirError(f"{path}: limits: is missing, or has a key missing") from None
    return validated(_SEARCH, document, str(path))


def run(
    probes: Sequence[Probe],
    limits: Limits,
    ask: Callable[[Ask, int], Probe],
    keep: Callable[[tuple[Probe, ...]], None],
) -> tuple[tuple[Probe, ...], Stop]:
    """Probe until there is no more to ask; `ask` is told how many probes came before."""
    done = tuple(probes)
    while True:
        step = next_step(done, limits)
        if isinstance(step, Stop):
            return done, step
        done = (*done, ask(step, len(done)))
        keep(done)


def answer(
    probes: Sequence[Probe],
    stop: Stop,
    *,
    knee: Callable[[Probe], Knee | None] = lambda probe: None,
    current: float | None = None,
) -> Answer:
    """The answer of a search that ended."""
    found = bounds(probes)
    levels = [one.confidence for probe in probes for one in probe.evidence]
    headroom = None
    if current and found.passes is not None:
        headroom = (found.passes - current) / current
    return Answer(
        found.passes,
        found.fails,
        min(levels, default=0.95),
        stop.reason,
        stop.why,
        _knee(probes, found.fails, knee),
        current,
        headroom,
    )


def _knee(
    probes: Sequence[Probe], fails: float | None, look: Callable[[Probe], Knee | None]
) -> Knee | None:
    """Of the lowest failing probe that can be diagnosed; else of the highest."""
    known = usable(probes)
    broken = [probe for probe in known if fails is not None and probe.rate >= fails]
    for probe in (*broken, *reversed(known)):
        found = look(probe)
        if found is not None:
            return found
    return None
