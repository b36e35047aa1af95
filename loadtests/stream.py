"""Sends requests to one target and gives back their exchanges, on connections opened ahead."""

import socket
import time
from collections import deque
from collections.abc import Callable

import gevent.socket
from gevent.event import Event

from loadtests.chat_request import Origin
from loadtests.client_watch import ClientWatch
from loadtests.connection import Address, Connection, failure_of
from loadtests.exchange import Exchange
from loadtests.receive_clock import PROCESS, ReceiveClock
from loadtests.tls import client_context
from slo.record import Failure

# Servers close idle connections (uvicorn after 5 s): an older one might close under a request.
OLDEST_FREE_NS = 4 * 10**9
FAILED_PAUSE_NS = 10**9  # after a spare connection failed
TICK_S = 0.02


class Streams:
    """All connections of one worker; `ended` is called once for each exchange.

    `spare` connections are kept open beyond those in use, so that no request waits for one; with
    `fresh`, each request opens one of its own.
    """

    def __init__(
        self,
        place: Origin,
        ended: Callable[[Exchange], None],
        clock: ReceiveClock,
        *,
        spare: int = 0,
        fresh: bool = False,
    ) -> None:
        self.watch = ClientWatch(clock)
        self._clock = clock
        self._spare = 0 if fresh else spare
        self._fresh = fresh
        self._place = place
        self._ended = ended
        self._address: Address | None = None
        self._failure: tuple[Failure, str] | None = None
        self._busy: dict[Connection, None] = {}  # in the order of their deadlines
        # The one that is free for longest comes first: a server that closes without having said so
        # does it at once, and is not met by the next request.
        self._free: deque[Connection] = deque()
        self._opening: set[Connection] = set()
        self._no_spare_before_ns = 0

    def find(self) -> None:
        """Resolve the target's name once, to the first of its addresses that takes a connection."""
        context = client_context() if self._place.tls else None
        try:
            found = gevent.socket.getaddrinfo(
                self._place.host, self._place.port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            self._failure = failure_of(error)
            return
        addresses = [Address(one[0], one[4], self._place.host, context) for one in found]
        self._address = next(filter(_answers, addresses[:-1]), addresses[-1])

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._busy)

    def send(self, exchange: Exchange, request: bytes, deadline_ns: int) -> None:
        """Send a request; deadlines must not go back from one to the next."""
        try:
            connection = self._free_one() or self._new()
        except OSError as error:
            exchange.broke, exchange.detail = failure_of(error)
            exchange.ended_ns = time.perf_counter_ns()
            self._ended(exchange)
            return
        if connection is None:
            assert self._failure is not None
            exchange.broke, exchange.detail = self._failure
            exchange.sent_ns = exchange.ended_ns = time.perf_counter_ns()
            self._ended(exchange)
            return
        self._busy[connection] = None
        connection.send(exchange, request, deadline_ns)

    def tick(self, *, soon: bool) -> None:
        """End what is over its deadline, close what is old, open what is needed soon."""
        self.watch.tick(round(TICK_S * 1e9))
        now_ns = time.perf_counter_ns()
        while self._busy and (first := next(iter(self._busy))).deadline_ns <= now_ns:
            first.give_up(Failure.TIMEOUT_BEFORE_HEADERS, "nothing came until the timeout")
        while self._free and now_ns - self._free[0].free_since_ns > OLDEST_FREE_NS:
            self._free.popleft().close()
        if soon and now_ns >= self._no_spare_before_ns:
            try:
                for _ in range(self._spare - len(self._free) - len(self._opening)):
                    if (spare := self._new()) is not None and not spare.closed:
                        self._opening.add(spare)
            except OSError:
                self._no_spare_before_ns = now_ns + FAILED_PAUSE_NS

    def cancel(self, why: str) -> None:
        """End all requests in flight."""
        for connection in list(self._busy):
            connection.give_up(Failure.CANCELLED, why)

    def close(self) -> None:
        """Close all connections that carry nothing."""
        for connection in (*self._free, *self._opening):
            connection.close()
        self._free.clear()
        self._opening.clear()

    def _free_one(self) -> Connection | None:
        oldest_ns = time.perf_counter_ns() - OLDEST_FREE_NS
        while self._free:
            connection = self._free.popleft()
            if not connection.closed and connection.free_since_ns > oldest_ns:
                return connection
            connection.close()
        return self._opening.pop() if self._opening else None

    def _new(self) -> Connection | None:
        if self._address is None:
            return None
        return Connection(self._address, self._clock, self._on_end)

    def _on_end(self, connection: Connection, exchange: Exchange | None) -> None:
        if connection.opened_ns:
            self.watch.opening_took(connection.opened_ns - connection.began_ns)
            connection.opened_ns = 0  # noted
        if exchange is None:
            self._opening.discard(connection)
            if connection in self._free:
                self._free.remove(connection)  # the peer closed it
            if connection.failure is not None:
                self._no_spare_before_ns = time.perf_counter_ns() + FAILED_PAUSE_NS
        else:
            self._busy.pop(connection, None)
        if self._fresh and exchange is not None:
            connection.close()
        elif not connection.closed:
            self._free.append(connection)
        if exchange is not None:
            self._ended(exchange)


def converse(place: Origin, request: bytes, timeout_s: float) -> Exchange:
    """Send one request and wait for its end."""
    over = Event()
    exchange = Exchange()
    streams = Streams(place, lambda _: over.set(), ReceiveClock(PROCESS))
    streams.find()
    deadline_ns = time.perf_counter_ns() + round(timeout_s * 1e9)
    streams.send(exchange, request, deadline_ns)
    while not over.wait(TICK_S):
        streams.tick(soon=False)
    streams.close()
    return exchange


def _answers(address: Address) -> bool:
    with gevent.socket.socket(address.family, socket.SOCK_STREAM) as trial:
        trial.settimeout(2.0)
        try:
            trial.connect(address.place)
        except OSError:
            return False
        return True
