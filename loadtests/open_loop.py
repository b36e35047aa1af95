"""Starts each request when it is due, whatever became of those before: the open loop."""

import time
from collections.abc import Callable, Iterator

import gevent
from gevent.event import Event
from gevent.pool import Group

from loadtests.chat_request import head, origin, request
from loadtests.exchange import Exchange
from loadtests.options import Plan
from loadtests.outcome import Outcome, outcome, unsent
from loadtests.schedule import arrivals, of_worker
from loadtests.stream import converse
from loadtests.token_ceiling import TokenCeiling
from slo.record import Arrival, Failure

STOP_DRAIN_S = 3.0  # how long requests in flight may take to end when a run is cut short


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
        self._plan = plan
        self._worker = worker
        self._t0_ns = t0_ns
        self._report = report
        self._in_flight = Group()
        self._cap = part(plan.max_in_flight, worker, plan.workers)
        self._ceiling = TokenCeiling.of(plan, worker)
        self._place = origin(plan.url)
        self._wake = Event()

    def run(self) -> None:
        """Walk the schedule, then wait until all that was started has ended."""
        mine = of_worker(arrivals(self._plan.load), self._worker, self._plan.workers)
        for arrival, wire in self._prepared(mine):
            assert arrival.due_s is not None
            due_ns = self._t0_ns + round(arrival.due_s * 1e9)
            wait_s = (due_ns - time.perf_counter_ns()) / 1e9
            if wait_s > 0:
                self._wake.wait(wait_s)
            if self.stopped is not None or not self._may_start(arrival):
                self.not_started += 1
                break
            self._start(arrival, due_ns, wire)
        self.not_started += sum(1 for _ in mine)
        self._in_flight.join()

    def stop(self, why: str, *, planned: bool) -> None:
        """Start no more. Unless it was planned, what is in flight gets a short while to end."""
        if self.stopped is None:
            self.stopped, self.planned = why, planned
            self.stopped_at_s = self._now_s()
            self._wake.set()
            if not planned:
                gevent.spawn_later(STOP_DRAIN_S, self._in_flight.kill)

    def _prepared(self, mine: Iterator[Arrival]) -> Iterator[tuple[Arrival, bytes]]:
        """Arrivals with their bytes, made before they are due."""
        before_length = head(self._plan)
        for arrival in mine:
            yield arrival, request(self._plan, before_length, arrival)

    def _may_start(self, arrival: Arrival) -> bool:
        most = self._plan.max_requests
        if most is not None and arrival.seq >= most:
            self.stop(f"the ceiling of --max-requests {most} was reached", planned=True)
        elif self._ceiling is not None and not self._ceiling.reserve(arrival):
            self.stop(
                f"the ceiling of --max-total-tokens {self._plan.max_total_tokens} was reached",
                planned=True,
            )
        return self.stopped is None

    def _start(self, arrival: Arrival, due_ns: int, wire: bytes) -> None:
        now_ns = time.perf_counter_ns()
        if len(self._in_flight) >= self._cap:
            why = f"{self._cap} requests of this worker were open (--max-in-flight)"
            self._end(unsent(arrival, self._worker, self._now_s(), Failure.IN_FLIGHT_CAP, why))
        elif now_ns - due_ns > self._plan.timeout_s * 1e9:
            why = "the generator was late by more than --timeout"
            self._end(unsent(arrival, self._worker, self._now_s(), Failure.DROPPED, why))
        else:
            self._in_flight.start(gevent.Greenlet(self._one, arrival, due_ns, wire))

    def _one(self, arrival: Arrival, due_ns: int, wire: bytes) -> None:
        exchange = Exchange()
        converse(self._place, wire, due_ns + round(self._plan.timeout_s * 1e9), exchange)
        self._end(outcome(arrival, self._worker, exchange, self._plan.reasoning, self._t0_ns))

    def _end(self, ended: Outcome) -> None:
        if self._ceiling is not None:
            self._ceiling.spend(ended.record)
        self._report(ended)

    def _now_s(self) -> float:
        return (time.perf_counter_ns() - self._t0_ns) // 1000 / 1e6


def part(whole: int, worker: int, workers: int) -> int:
    """One worker's part of a bound; the parts add up to it."""
    return whole // workers + (worker < whole % workers)
