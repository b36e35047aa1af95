"""Starts each request when it is due, whatever became of those before: the open loop.

Stamps come first: what has ended is read, and what comes next is prepared, in spare time. A closed
loop is the same with other due times: a request is due when another ended.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gevent
from gevent.event import Event

from loadtests.agenda import Agenda, Ready
from loadtests.chat_request import origin
from loadtests.exchange import Exchange
from loadtests.outcome import Outcome, outcome, unsent
from loadtests.plan import Plan
from loadtests.precise_timer import PreciseTimer
from loadtests.receive_clock import ReceiveClock
from loadtests.spare_time import SpareTime, collected_in_spare_time
from loadtests.stream import TICK_S, Streams
from loadtests.text_tokens import counter
from loadtests.token_ceiling import TokenCeiling
from slo.record import Arrival, Failure

STOP_DRAIN_S = 3.0  # how long requests in flight may take to end when a run is cut short
CONNECT_AHEAD_NS = 500_000_000
SPARE_S = 0.1  # connections are open for the arrivals of so long
TURN_NS = 10_000_000  # for so long, arrivals that are due go before all else
HOPELESS_S = 5.0  # arrivals that are over so long are not even noted one by one
FAILED_PAUSE_NS = 100_000_000  # of a closed loop, which would storm a server that refuses it


class OpenLoop:
    """One worker's part of a run; `report` is called once for each arrival that ended.

    `t0_ns` is the run's start on this machine's clock.
    """

    def __init__(
        self, plan: Plan, worker: int, t0_ns: int, report: Callable[[Outcome], None]
    ) -> None:
        self.not_started = 0
        self.stopped: str | None = None
        self.stopped_at_s = 0.0
        self.planned = True  # stopped for a reason that the options state
        self.for_all = False  # the other workers have to stop for it too
        self._plan = plan
        self._worker = worker
        self._t0_ns = t0_ns
        self._report = report
        self._reported = 0
        self._timeout_ns = round(plan.timeout_s * 1e9)
        self._hopeless_s = plan.load.end_s + plan.timeout_s + HOPELESS_S
        self._cap = part(plan.max_in_flight, worker, plan.workers)
        self._slots = part(plan.load.process.slots, worker, plan.workers)
        self._ceiling = TokenCeiling.of(plan, worker)
        self._count_tokens = counter(plan.tokenizer)
        spare = self._slots or 1 + math.ceil(plan.load.rate_per_s / plan.workers * SPARE_S)
        self._streams = Streams(
            origin(plan.url),
            self._on_end,
            ReceiveClock(plan.receive_clock),
            spare=min(self._cap, spare),
            fresh=plan.fresh_connections,
        )
        self._agenda = Agenda(plan, worker, t0_ns)
        self._unread: deque[Exchange] = deque()
        self._over = Event()

    def run(self) -> None:
        """Walk the schedule, then wait until all that was started has ended and is reported."""
        self._streams.find()
        while self._agenda.wants_more and self._agenda.prepare():
            pass
        loop = gevent.get_hub().loop
        ticks = loop.timer(TICK_S, TICK_S)
        self._timer = PreciseTimer(self._on_due)
        self._spare_time = SpareTime(self._piece)
        try:
            with collected_in_spare_time():
                ticks.start(self._on_tick)
                for _ in range(self._slots):
                    self._agenda.offer_slot(self._t0_ns, self._t0_ns)
                if self._agenda.closed and not self._slots:
                    self._agenda.close(later_too=True)
                self._on_due()
                self._over.wait()
        finally:
            ticks.stop()
            ticks.close()
            self._timer.close()
            self._spare_time.close()
            self._streams.close()
        if self.stopped is not None and not self._agenda.closed:
            self.not_started = self._agenda.planned() - self._reported

    def stop(self, why: str, *, planned: bool) -> None:
        """Start no more. Unless it was planned, what is in flight gets a short while to end."""
        if self.stopped is None:
            self.stopped, self.planned = why, planned
            self.for_all = self.for_all or not planned
            self.stopped_at_s = self._now_s()
            self._agenda.close(later_too=not planned)
            if not planned:
                words = "in flight when the run was stopped"
                gevent.spawn_later(STOP_DRAIN_S, self._streams.cancel, words)

    def client(self) -> dict[str, Any]:
        """What the engine itself took, as a message."""
        return self._streams.watch.told()

    # What the event loop calls

    def _on_due(self) -> None:
        turn_over_ns = time.perf_counter_ns() + TURN_NS
        while (ready := self._agenda.next()) is not None:
            now_ns = time.perf_counter_ns()
            if ready.due_ns > now_ns or now_ns > turn_over_ns:
                # Behind, what has come gets its turn: else no answer and no timeout would be seen.
                self._timer.arm(max(ready.due_ns, now_ns))
                break
            if not self._may_start(ready):
                continue
            self._agenda.take(ready)
            self._start(ready)
        if self._agenda.wants_more:
            self._spare_time.wake()

    def _on_tick(self) -> None:
        ahead_ns = self._agenda.next_due_ns() - time.perf_counter_ns()
        self._streams.tick(soon=-TURN_NS < ahead_ns < CONNECT_AHEAD_NS)
        if not (self._agenda.exhausted or self._agenda.closed) and self._now_s() > self._hopeless_s:
            self.stop("the generator was too slow for this rate, even to say so", planned=False)
        if self._agenda.empty and not (self._unread or self._streams.in_flight):
            self._over.set()

    def _on_end(self, exchange: Exchange) -> None:
        self._unread.append(exchange)
        self._spare_time.wake()

    def _piece(self) -> bool:
        if self._unread:
            self._read(self._unread.popleft())
            return True
        return self._agenda.wants_more and self._agenda.prepare()

    # The steps of one arrival

    def _may_start(self, ready: Ready) -> bool:
        """Whether the ceilings allow it; what they do not allow is off the agenda then."""
        most, arrival = self._plan.max_requests, ready.arrival
        why = None
        if most is not None and arrival.seq >= most:
            why = f"the ceiling of --max-requests {most} was reached"
        elif self._ceiling is not None and not self._ceiling.reserve(
            arrival, len(ready.wire), self._agenda.said_tokens(arrival)
        ):
            most = self._plan.max_total_tokens
            self.for_all = True
            why = f"the ceiling of --max-total-tokens {most} was reached"
        if why is None:
            return True
        self._agenda.take(ready)
        self._agenda.forget(arrival)
        self.stop(why, planned=True)
        return False

    def _start(self, ready: Ready) -> None:
        arrival, now_ns = ready.arrival, time.perf_counter_ns()
        due_ns = ready.due_ns
        if self._agenda.closed and not arrival.turn:
            due_ns, arrival = now_ns, self._due_at(arrival, now_ns)
        if self._streams.in_flight >= self._cap:
            why = f"{self._cap} requests of this worker were open (--max-in-flight)"
            self._unstarted(arrival, Failure.IN_FLIGHT_CAP, why)
        elif now_ns - due_ns > self._timeout_ns:
            self._unstarted(arrival, Failure.DROPPED, "the generator was later than --timeout")
        else:
            self._streams.send(Exchange(arrival), ready.wire, due_ns + self._timeout_ns)

    def _unstarted(self, arrival: Arrival, failure: Failure, why: str) -> None:
        self._done(unsent(arrival, self._worker, self._now_s(), failure, why), None)

    def _due_at(self, arrival: Arrival, at_ns: int) -> Arrival:
        due_s = self._s(at_ns)
        return replace(arrival, due_s=due_s, phase=self._plan.load.phase(due_s))

    def _read(self, exchange: Exchange) -> None:
        mode, arrival = self._plan.reasoning, exchange.arrival
        if self._agenda.closed and arrival and not arrival.turn and exchange.sent_ns is not None:
            exchange.arrival = self._due_at(arrival, exchange.sent_ns)  # due is sent
        ended = outcome(exchange, self._worker, mode, self._t0_ns, self._count_tokens)
        self._done(ended, exchange.ended_ns)

    def _done(self, ended: Outcome, ended_ns: int | None) -> None:
        self._tell(ended)
        now_ns = time.perf_counter_ns()
        skipped = self._agenda.go_on(ended, now_ns if ended_ns is None else ended_ns)
        if skipped is not None:
            for one in skipped:
                self._tell(one)
            if self._agenda.closed and self.stopped is None:
                pause_ns = 0 if ended.record.error is None else FAILED_PAUSE_NS
                self._agenda.offer_slot(now_ns, now_ns + pause_ns)
        if (skipped is None or self._agenda.closed) and (ready := self._agenda.next()) is not None:
            self._timer.arm(ready.due_ns)

    def _tell(self, ended: Outcome) -> None:
        self._reported += 1
        if self._ceiling is not None:
            self._ceiling.spend(ended.record)
        self._report(ended)

    def _now_s(self) -> float:
        return self._s(time.perf_counter_ns())

    def _s(self, at_ns: int) -> float:
        return (at_ns - self._t0_ns) // 1000 / 1e6


def part(whole: int, worker: int, workers: int) -> int:
    """One worker's part of a bound; the parts add up to it."""
    return whole // workers + (worker < whole % workers)
