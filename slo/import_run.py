"""Another tool's requests as a run directory, as far as they go."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from slo import rundir
from slo.ending import UsageError
from slo.histograms import write_hlog
from slo.import_formats import Foreign, ForeignRun
from slo.quantities import MOST_S
from slo.record import Arrival, Failure, Phase, Record
from slo.rundir import Counts, Run

_RECORD = TypeAdapter(Record)
_KINDS = {
    "timeout": Failure.TIMEOUT_MID_STREAM,
    "cancel": Failure.CANCELLED,
    "refused": Failure.REFUSED,
    "cannot connect": Failure.REFUSED,
    "reset": Failure.RESET,
    "disconnected": Failure.RESET,
}


def write(found: ForeignRun, directory: Path, timeout_s: float) -> Run:
    """Write a run directory of what another tool measured.

    Raises:
        UsageError: its times are those of no run.
        RunDirError: the directory holds a run already, or cannot be made.
    """
    start = min(one.due_s for one in found.requests)
    latest = max(max(one.due_s, one.ended_s or 0.0) for one in found.requests)
    if not latest - start <= MOST_S:
        hours = MOST_S / 3600
        raise UsageError(f"its times span {latest - start:.3g} s; allowed: {hours:,.0f} h or less")
    rundir.create(directory)
    ordered = sorted(found.requests, key=lambda one: one.due_s)
    records = [_record(seq, one, start) for seq, one in enumerate(ordered)]
    rundir.write_schedule(directory, map(_arrival, records))
    lines = (_RECORD.dump_json(record).decode() + "\n" for record in records)
    rundir.write_atomic(directory / rundir.REQUESTS, "".join(lines))
    run = _run(directory.resolve().name, found, records, timeout_s)
    rundir.write_run(directory, run)
    write_hlog(directory)
    return run


def _record(seq: int, one: Foreign, start: float) -> Record:
    def at(moment: float | None) -> float | None:
        return None if moment is None else round(moment - start, 6)

    phase: Phase = "warmup" if one.warmup else "measured"
    return Record(
        seq=seq,
        due_s=round(one.due_s - start, 6),
        phase=phase,
        scenario=one.scenario,
        lang="unknown",
        input_class="unknown",
        prompt_id=str(seq),
        max_tokens=0,
        session=seq,
        turn=0,
        after_seq=None,
        think_s=None,
        worker=0,
        sent_s=at(one.sent_s),
        first_event_s=at(one.first_token_s),
        first_token_s=at(one.first_token_s),
        first_answer_token_s=at(one.first_answer_s),
        last_token_s=at(one.last_token_s),
        ended_s=at(one.ended_s),
        prompt_tokens=one.prompt_tokens,
        output_tokens=one.output_tokens,
        tokens_from="tokenizer" if one.output_tokens is not None else None,
        chunks=one.chunks or 0,
        first_chunk_tokens=1 if one.chunks else None,
        itl_ms=one.gaps_ms,
        status=one.status,
        error=_kind(one),
        error_detail=one.error,
    )


def _kind(one: Foreign) -> Failure | None:
    if one.error is None:
        return None
    text = one.error.lower()
    if one.status is not None and one.status >= 400 and one.status != 499:
        return Failure.HTTP_STATUS
    return next((kind for word, kind in _KINDS.items() if word in text), Failure.ERROR_EVENT)


def _arrival(record: Record) -> Arrival:
    return Arrival(**{name: getattr(record, name) for name in Arrival.__slots__})


def _run(name: str, found: ForeignRun, records: list[Record], timeout_s: float) -> Run:
    judged = [record.due_s for record in records if record.phase == "measured"]
    first = min(judged, default=0.0)
    # The window ends one mean gap after the last arrival; whole seconds would cut it off.
    length = max(judged, default=0.0) - first
    length = max(length * len(judged) / max(len(judged) - 1, 1), 1e-3)
    completed = sum(record.completed for record in records)
    started = datetime.now(UTC)
    return Run(
        id=name,
        label=f"imported from {found.imported.tool}",
        seed=0,
        arrival=found.arrival,
        rate_per_s=found.asked_rate_per_s or len(judged) / length,
        duration_s=length,
        warmup_s=first,
        mix=_mix(record.scenario for record in records),
        target_url=found.target_url,
        api_path="",
        model=found.model,
        timeout_s=timeout_s,
        max_in_flight=len(records),
        sampling={},
        reasoning="field" if any(one.first_answer_s for one in found.requests) else "unknown",
        versions={},
        git_sha=None,
        host={},
        workers=(),
        started_at=started.isoformat(timespec="seconds"),
        t0_wall_ns=int(started.timestamp() * 1e9),
        t0_mono_ns=0,
        counts=Counts(
            scheduled=len(records),
            sent=sum(record.sent_s is not None for record in records),
            completed=completed,
            failed=len(records) - completed,
        ),
        finished=True,
        imported=replace(found.imported),
    )


def _mix(scenarios: Iterable[str]) -> dict[str, float]:
    every = list(scenarios)
    return {name: every.count(name) / len(every) for name in dict.fromkeys(every)}
