"""What cannot be true in a run: each record's own order and sums, and the run's physics."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from slo.causes import causes_of, found_for
from slo.claim_rules import LITTLE, Finding
from slo.measurements import collect
from slo.physics import roofline
from slo.record import Record
from slo.request_table import Rows, table
from slo.rundir import read_records, read_run
from slo.signals import Signals

SLACK_S = 0.005
_MOMENTS = (
    "sent_s",
    "first_event_s",
    "first_token_s",
    "first_answer_token_s",
    "last_token_s",
    "ended_s",
)
_TOLD = 3  # examples of one mistake


def lint_run(directory: Path) -> list[Finding]:
    """All that is wrong with a run's numbers.

    Raises:
        RunDirError: run.json or requests.jsonl cannot be read.
    """
    run, rows = read_run(directory), Rows()
    found: dict[str, list[int]] = {}

    def watched() -> Iterator[Record]:
        for record in rows.noting(read_records(directory)):
            for mistake in mistakes(record):
                found.setdefault(mistake, []).append(record.seq)
            yield record

    measured = collect(watched(), run)
    findings = [_told(mistake, seqs) for mistake, seqs in found.items()]
    check = roofline(run, measured.columns, found_for(directory, run))
    if check.outcome == "void":
        findings.append(
            Finding("broken", "roofline", f"{check.measured} ({check.limit}): {check.why}")
        )
    signals = causes_of(directory, run, table(rows)).signals
    return [*findings, *load_findings(signals)]


def mistakes(record: Record) -> Iterator[str]:
    """What contradicts itself in one record."""
    told = [(name, getattr(record, name)) for name in _MOMENTS]
    seen = [(name, at) for name, at in told if at is not None]
    for (early, a), (late, b) in pairwise(seen):
        if a > b + 1e-6:
            yield f"{early} is after {late}"
    if not record.completed:
        return
    first, last = record.first_token_s, record.last_token_s
    if record.itl_ms and first is not None and last is not None:
        if abs(sum(record.itl_ms) / 1e3 - (last - first)) > SLACK_S:
            yield "the gaps do not add up to first to last token"
        if len(record.itl_ms) != record.chunks - 1:
            yield "there is not one gap fewer than chunks"
    if record.output_tokens is not None and 0 < record.max_tokens < record.output_tokens:
        yield "more output tokens than max_tokens"
    if record.timings and record.sent_s is not None and record.ended_s is not None:
        stages = sum(value for name, value in record.timings.items() if name.endswith("_ms"))
        if stages / 1e3 > record.ended_s - record.sent_s + SLACK_S:
            yield "the server's timings are longer than the request took"


def load_findings(signals: Signals) -> Iterator[Finding]:
    """Little's law between what the client saw open and what the server says it held."""
    server, seen = signals.server, signals.load.open
    if server is None or server.running is None or max(seen, server.running) < 1:
        return
    held = server.running + (server.waiting or 0.0)
    if abs(held - seen) > LITTLE * max(seen, held) + 0.5:
        what = f"the server held {held:.1f} requests, this client had {seen:.1f} open: "
        what += "it serves others too" if held > seen else "something between them holds the rest"
        yield Finding("doubtful", "load", what)


def _told(mistake: str, seqs: list[int]) -> Finding:
    some = ", ".join(str(seq) for seq in seqs[:_TOLD])
    more = f" and {len(seqs) - _TOLD} more" if len(seqs) > _TOLD else ""
    return Finding("broken", "requests.jsonl", f"{mistake}: seq {some}{more}")
