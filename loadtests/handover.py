"""From a worker to the one that writes: outcomes in small batches, and totals at the end.

The totals must equal the sum of the batches; a worker that never sends them was lost.
"""

from array import array
from dataclasses import asdict, dataclass
from typing import Any

from loadtests.outcome import Outcome, json_line, line
from slo.record import Failure

# Messages of workers to the master ...
READY, PONG = "tailgate-ready", "tailgate-pong"
RECORDS, END = "tailgate-records", "tailgate-end"
# ... and of the master to workers.
START, STOP, PING = "tailgate-start", "tailgate-stop", "tailgate-ping"


@dataclass(slots=True)
class Tally:
    """How many arrivals ended how."""

    records: int = 0
    sent: int = 0
    completed: int = 0
    failed: int = 0
    dropped: int = 0

    def add(self, other: "Tally") -> None:
        """Count another's in."""
        self.records += other.records
        self.sent += other.sent
        self.completed += other.completed
        self.failed += other.failed
        self.dropped += other.dropped


class Desk:
    """Collects a worker's outcomes until they are handed over."""

    def __init__(self, *, keep_answers: bool) -> None:
        self.total = Tally()
        self._keep_answers = keep_answers
        self._clear()

    def _clear(self) -> None:
        self._tally = Tally()
        self._lines: list[bytes] = []
        self._answers: list[bytes] = []
        self._lateness_us = array("I")

    def add(self, outcome: Outcome) -> None:
        """Take an outcome in."""
        record = outcome.record
        self._lines.append(line(record))
        if self._keep_answers and (outcome.answer or outcome.reasoning):
            kept = {"seq": record.seq, "text": outcome.answer, "reasoning": outcome.reasoning}
            self._answers.append(json_line(kept))
        tally = self._tally
        tally.records += 1
        if record.sent_s is not None:
            tally.sent += 1
            self._lateness_us.append(max(0, round((record.sent_s - record.due_s) * 1e6)))
        if record.error is None:
            tally.completed += 1
        elif record.error is Failure.DROPPED:
            tally.dropped += 1
        else:
            tally.failed += 1

    def batch(self) -> dict[str, Any] | None:
        """What came in since the last batch, as a message; None when nothing did."""
        if not self._lines:
            return None
        message = {
            "lines": b"".join(self._lines),
            "answers": b"".join(self._answers),
            "lateness_us": self._lateness_us.tobytes(),
            "tally": asdict(self._tally),
        }
        self.total.add(self._tally)
        self._clear()
        return message

    def end(self, not_started: int, fault: str | None) -> dict[str, Any]:
        """The last message: totals over all batches, which must have been taken before."""
        return {"tally": asdict(self.total), "not_started": not_started, "fault": fault}
