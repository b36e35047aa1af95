"""What a worker has to send next: requests made ahead, and turns of sessions that go on."""

import heapq
import time
from collections import deque
from dataclasses import dataclass, replace

from loadtests.chat_request import head, request
from loadtests.conversation import Conversation
from loadtests.outcome import Outcome, unsent
from loadtests.plan import Plan
from loadtests.schedule import of_worker, sessions
from slo.record import Arrival, Failure

PREPARED = 128  # requests made ahead


@dataclass(frozen=True, slots=True)
class Ready:
    """A request as it goes onto the wire, and when; b"" where it was too late to be made."""

    due_ns: int
    arrival: Arrival
    wire: bytes


class Agenda:
    """One worker's part of the schedule, from which requests are taken in order of time.

    `t0_ns` is the run's start on this machine's clock.
    """

    def __init__(self, plan: Plan, worker: int, t0_ns: int) -> None:
        self.exhausted = False
        self.closed = plan.load.process.closed
        self._load = plan.load
        self._plan = plan
        self._worker = worker
        self._t0_ns = t0_ns
        self._timeout_ns = round(plan.timeout_s * 1e9)
        self._before_length = head(plan)
        self._mine = of_worker(sessions(plan.load), worker, plan.workers)
        self._first: deque[Ready] = deque()
        self._later: list[tuple[int, int, Ready]] = []
        self._talks: dict[int, Conversation] = {}
        self._drawn = 0  # arrivals of all sessions that were begun or made ahead

    @property
    def wants_more(self) -> bool:
        """Whether there is something to make ahead."""
        return len(self._first) < PREPARED and not self.exhausted

    def prepare(self) -> bool:
        """Make the next session's first request; false when there is none."""
        session = None if self.exhausted else next(self._mine, None)
        if session is None:
            self.exhausted = True
            return False
        self._drawn += len(session)
        first = session[0]
        due_ns = self._at_ns(first.due_s or 0.0)
        talk = Conversation(self._load, session)
        if len(session) > 1:
            self._talks[first.session] = talk
        if not self.closed and time.perf_counter_ns() - due_ns > self._timeout_ns:
            talk.pass_over()
            wire = b""  # it is not sent any more
        else:
            talk.next_turn()
            wire = request(self._plan, self._before_length, talk.messages, first.max_tokens)
        self._first.append(Ready(due_ns, first, wire))
        return True

    def next(self) -> Ready | None:
        """What is due next; it stays until it is taken."""
        if self.closed:
            return self._later[0][2] if self._later else None
        if not self._first:
            self.prepare()
        if not self._later:
            return self._first[0] if self._first else None
        later = self._later[0][2]
        return self._first[0] if self._first and self._first[0].due_ns <= later.due_ns else later

    def take(self, ready: Ready) -> None:
        """Off the agenda."""
        if self._first and self._first[0] is ready:
            self._first.popleft()
        else:
            heapq.heappop(self._later)

    @property
    def empty(self) -> bool:
        """Whether nothing waits, and no session can begin."""
        return self.exhausted and not self._first and not self._later

    def next_due_ns(self) -> float:
        """When something is due, as far as is known."""
        dues = [self._first[0].due_ns] if self._first and not self.closed else []
        dues += [self._later[0][0]] if self._later else []
        return min(dues, default=float("inf"))

    def said_tokens(self, arrival: Arrival) -> int:
        """Tokens of the earlier turns that a request sends again."""
        talk = self._talks.get(arrival.session)
        return talk.tokens if talk else 0

    # A closed loop

    def offer_slot(self, now_ns: int, not_before_ns: int) -> None:
        """A request may be open that was not: begin the next session then, while there is time."""
        if not_before_ns - self._t0_ns >= round(self._load.end_s * 1e9):
            self.exhausted = True
            self._first.clear()
            return
        if not self._first and not self.prepare():
            return
        ready = self._first.popleft()
        self._put(replace(ready, due_ns=max(now_ns, not_before_ns)))

    # Later turns

    def go_on(self, ended: Outcome, ended_ns: int) -> list[Outcome] | None:
        """A turn ended: what became of the session's other turns, or None where it goes on."""
        record = ended.record
        talk = self._talks.get(record.session)
        if talk is None:
            return []
        if record.error is not None:
            del self._talks[record.session]
            why = f"turn {record.turn} of the session failed: {record.error}"
            at_s = record.due_s if record.ended_s is None else record.ended_s
            return [
                unsent(
                    replace(turn, due_s=round(at_s + (turn.think_s or 0.0), 6)),
                    self._worker,
                    at_s,
                    Failure.SKIPPED,
                    why,
                )
                for turn in talk.give_up()
            ]
        if talk.over:
            del self._talks[record.session]
            return []
        talk.hear(ended.answer, (record.prompt_tokens or 0) + (record.output_tokens or 0))
        turn = talk.next_turn()
        due_ns = ended_ns + round((turn.think_s or 0.0) * 1e9)
        phase = ended.record.phase
        turn = replace(turn, due_s=(due_ns - self._t0_ns) // 1000 / 1e6, phase=phase)
        wire = request(self._plan, self._before_length, talk.messages, turn.max_tokens)
        self._put(Ready(due_ns, turn, wire))
        return None

    def forget(self, arrival: Arrival) -> None:
        """A session's turn is not asked, so none after it is."""
        self._talks.pop(arrival.session, None)

    def close(self, *, later_too: bool) -> None:
        """Begin no session any more; without `later_too`, those that have begun go on."""
        self.exhausted = True
        for ready in self._first:
            self._talks.pop(ready.arrival.session, None)
        self._first.clear()
        if later_too:
            self._later.clear()
            self._talks.clear()

    def planned(self) -> int:
        """How many arrivals this worker had in all; of a closed loop there is no end to them."""
        return self._drawn + sum(len(session) for session in self._mine)

    def _put(self, ready: Ready) -> None:
        heapq.heappush(self._later, (ready.due_ns, ready.arrival.seq, ready))

    def _at_ns(self, due_s: float) -> int:
        return self._t0_ns + round(due_s * 1e9)
