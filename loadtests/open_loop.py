"""Starts each request when it is due, whatever became of those before: the open loop.

Stamps come first: what has ended is read, and what comes next is prepared, in spare time.
"""

import math
import time
from collections import deque
from collections.abc import Callable

import gevent
from gevent.event import Event

from loadtests.chat_request import head, origin, request
from loadtests.exchange import Exchange
from loadtests.options import Plan
from loadtests.outcome import Outcome, outcome, unsent
from loadtests.precise_timer import PreciseTimer
from loadtests.schedule import arrivals, of_worker
from loadtests.spare_time import SpareTime, collected_in_spare_time
from loadtests.stream import TICK_S, Streams
from loadtests.token_ceiling import TokenCeiling
from slo.record import Arrival, Failure

STOP_DRAIN_S = 3.0  # how long requests in flight may take to end when a run is cut short
PREPARED = 128  # requests made ahead
CONNECT_AHEAD_NS = 500_000_000
SPARE_S = 0.1  # connections are open for the arrivals of so long


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
        self._timeout_ns = round(plan.timeout_s * 1e9)
        self._cap = part(plan.max_in_flight, worker, plan.workers)
        self._ceiling = TokenCeiling.of(plan, worker)
        spare = min(self._cap, 1 + math.ceil(plan.load.rate_per_s / plan.workers * SPARE_S))
        self._streams = Streams(origin(plan.url), self._on_end, spare=spare)
        self._mine = of_worker(arrivals(plan.load), worker, plan.workers)
        self._before_length = head(plan)
        self._prepared: deque[tuple[int, Arrival, bytes]] = deque()
        self._exhausted = False
        self._unread: deque[Exchange] = deque()
        self._over = Event()

    def run(self) -> None:
        """Walk the schedule, then wait until all that was started has ended and is reported."""
        self._streams.find()
        while len(self._prepared) < PREPARED and self._prepare():
            pass
        loop = gevent.get_hub().loop
        ticks = loop.timer(TICK_S, TICK_S)
        self._timer = PreciseTimer(self._on_due)
        self._spare_time = SpareTime(self._piece)
        try:
            with collected_in_spare_time():
                ticks.start(self._on_tick)
                self._on_due()
                self._over.wait()
        finally:
            ticks.stop()
            ticks.close()
            self._timer.close()
            self._spare_time.close()
            self._streams.close()

    def stop(self, why: str, *, planned: bool) -> None:
        """Start no more. Unless it was planned, what is in flight gets a short while to end."""
        if self.stopped is None:
            self.stopped, self.planned = why, planned
            self.for_all = self.for_all or not planned
            self.stopped_at_s = self._now_s()
            self.not_started = len(self._prepared) + sum(1 for _ in self._mine)
            self._prepared.clear()
            self._exhausted = True
            if not planned:
                words = "in flight when the run was stopped"
                gevent.spawn_later(STOP_DRAIN_S, self._streams.cancel, words)

    # What the event loop calls

    def _on_due(self) -> None:
        while self._prepared or self._prepare():
            due_ns, arrival, wire = self._prepared[0]
            if due_ns > time.perf_counter_ns():
                self._timer.arm(due_ns)
                break
            if not self._may_start(arrival):
                break
            self._prepared.popleft()
            self._start(due_ns, arrival, wire)
        if len(self._prepared) < PREPARED:
            self._spare_time.wake()

    def _on_tick(self) -> None:
        next_ns = self._prepared[0][0] if self._prepared else math.inf
        self._streams.tick(soon=next_ns - time.perf_counter_ns() < CONNECT_AHEAD_NS)
        if self._exhausted and not (self._prepared or self._unread or self._streams.in_flight):
            self._over.set()

    def _on_end(self, exchange: Exchange) -> None:
        self._unread.append(exchange)
        self._spare_time.wake()

    def _piece(self) -> bool:
        if self._unread:
            self._read(self._unread.popleft())
        elif len(self._prepared) >= PREPARED or not self._prepare():
            return False
        return True

    # The steps of one arrival

    def _prepare(self) -> bool:
        arrival = next(self._mine, None)
        if arrival is None:
            self._exhausted = True
            return False
        assert arrival.due_s is not None
        due_ns = self._t0_ns + round(arrival.due_s * 1e9)
        wire = request(self._plan, self._before_length, arrival)
        self._prepared.append((due_ns, arrival, wire))
        return True

    def _may_start(self, arrival: Arrival) -> bool:
        most = self._plan.max_requests
        if most is not None and arrival.seq >= most:
            self.stop(f"the ceiling of --max-requests {most} was reached", planned=True)
        elif self._ceiling is not None and not self._ceiling.reserve(arrival):
            most = self._plan.max_total_tokens
            self.for_all = True
            self.stop(f"the ceiling of --max-total-tokens {most} was reached", planned=True)
        return self.stopped is None

    def _start(self, due_ns: int, arrival: Arrival, wire: bytes) -> None:
        if self._streams.in_flight >= self._cap:
            why = f"{self._cap} requests of this worker were open (--max-in-flight)"
            self._unstarted(arrival, Failure.IN_FLIGHT_CAP, why)
        elif time.perf_counter_ns() - due_ns > self._timeout_ns:
            self._unstarted(arrival, Failure.DROPPED, "the generator was later than --timeout")
        else:
            self._streams.send(Exchange(arrival), wire, due_ns + self._timeout_ns)

    def _unstarted(self, arrival: Arrival, failure: Failure, why: str) -> None:
        self._done(unsent(arrival, self._worker, self._now_s(), failure, why))

    def _read(self, exchange: Exchange) -> None:
        mode = self._plan.reasoning
        self._done(outcome(exchange, self._worker, mode, self._t0_ns))

    def _done(self, ended: Outcome) -> None:
        if self._ceiling is not None:
            self._ceiling.spend(ended.record)
        self._report(ended)

    def _now_s(self) -> float:
        return (time.perf_counter_ns() - self._t0_ns) // 1000 / 1e6


def part(whole: int, worker: int, workers: int) -> int:
    """One worker's part of a bound; the parts add up to it."""
    return whole // workers + (worker < whole % workers)
