"""A connection that never blocks, driven by the event loop's own callbacks.

A greenlet for each request would cost a switch for each packet; here a packet is a clock reading,
one recv and two appends, and everything else is read later.
"""

import _socket  # the C type itself: the socket module's is gevent's, which would wait
import errno
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent

from loadtests.exchange import Exchange
from loadtests.http1 import NotHttpError
from loadtests.receive_clock import ROOM, ReceiveClock
from loadtests.tls import TlsLayer
from slo.record import Failure

READ, WRITE = 1, 2  # the event loop's masks
MOST_RECEIVED = 16 * 1024  # more is more to allocate for each packet, and packets are small
# No fault of the server's: this machine has no file descriptor, port or memory left.
OWN_LIMITS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect to, resolved; `tls` where the URL says https."""

    family: int
    place: Any
    host: str
    tls: ssl.SSLContext | None


class Connection:
    """One connection: carries one request at a time, `on_end` says when it is over."""

    __slots__ = (
        "_address",
        "_clock",
        "_on_end",
        "_reading",
        "_socket",
        "_stamped",
        "_tls",
        "_unsent",
        "_writing",
        "began_ns",
        "closed",
        "deadline_ns",
        "exchange",
        "failure",
        "free_since_ns",
        "open",
        "opened_ns",
    )

    def __init__(
        self,
        address: Address,
        clock: ReceiveClock,
        on_end: Callable[["Connection", Exchange | None], None],
    ) -> None:
        """Begin to connect.

        Raises:
            OSError: this machine has no socket left.
        """
        self.exchange: Exchange | None = None
        self.deadline_ns = 0
        self.began_ns = self.free_since_ns = time.perf_counter_ns()
        self.open = False
        self.opened_ns = 0
        self.closed = False
        self.failure: tuple[Failure, str] | None = None  # of a connection that carries nothing
        self._address = address
        self._clock = clock
        self._on_end = on_end
        self._unsent = b""
        self._tls = TlsLayer(address.tls, address.host) if address.tls else None
        self._socket = _socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Of encrypted bytes the kernel cannot say which of them an event came with.
        self._stamped = self._tls is None and clock.stamp(self._socket)
        loop = gevent.get_hub().loop
        self._reading = loop.io(self._socket.fileno(), READ)
        self._writing = loop.io(self._socket.fileno(), WRITE)
        error = self._socket.connect_ex(address.place)
        if error in (0, errno.EINPROGRESS):
            self._writing.start(self._on_writable)
        else:
            self._broke(OSError(error, os.strerror(error)))

    def send(self, exchange: Exchange, request: bytes, deadline_ns: int) -> None:
        """Send a request, as soon as the connection is open."""
        self.exchange = exchange
        self.deadline_ns = deadline_ns
        self._unsent = request
        exchange.sent_ns = time.perf_counter_ns()
        if self.failure is not None:
            self._over(*self.failure)
        elif self.open:
            if self._tls is not None:
                self._unsent = self._tls.encrypt(request)
            self._flush()

    def give_up(self, failure: Failure, detail: str) -> None:
        """End the request without an answer."""
        if failure is Failure.TIMEOUT_BEFORE_HEADERS and not self.open:
            failure = Failure.CONNECT_TIMEOUT
        self._over(failure, detail)

    def close(self) -> None:
        """Close, and let the event loop forget it."""
        if not self.closed:
            self.closed = True
            self._reading.stop()
            self._reading.close()
            self._writing.stop()
            self._writing.close()
            self._socket.close()

    def _on_readable(self) -> None:
        try:
            if self._stamped:
                packet, beside, _, _ = self._socket.recvmsg(MOST_RECEIVED, ROOM)
                stamp_ns = self._clock.came_ns(beside)
            else:
                stamp_ns = time.perf_counter_ns()
                packet = self._socket.recv(MOST_RECEIVED)
            if self._tls is not None and packet:
                packet, last = self._decrypted(packet)
                if not packet and not last:
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(error)
            return
        exchange = self.exchange
        if exchange is None or not packet:
            self._peer_closed(stamp_ns)
            return
        try:
            if not exchange.take(stamp_ns, packet):
                return
        except NotHttpError as error:
            self._over(Failure.NOT_HTTP, str(error))
            return
        exchange.ended_ns = self.free_since_ns = stamp_ns
        self.exchange = None
        head = exchange.http.head
        if head is None or not head.keeps_open or self._unsent:
            self.close()
        self._on_end(self, exchange)

    def _on_writable(self) -> None:
        if not self.open:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._broke(OSError(error, os.strerror(error)))
                return
            self._reading.start(self._on_readable)
            if self._tls is None:
                self._opened()
            elif not self._tls.ready:
                self._shake(b"")
                return
        self._flush()

    def _opened(self) -> None:
        self.open = True
        self.opened_ns = now_ns = time.perf_counter_ns()
        if self.exchange is not None:
            self.exchange.connected_ns = now_ns
            if self._tls is not None:
                self._unsent = self._tls.encrypt(self._unsent)
        else:
            self.free_since_ns = now_ns
            self._on_end(self, None)

    def _flush(self) -> None:
        try:
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._broke(error)
            return
        if self._unsent:
            self._writing.start(self._on_writable)
        else:
            self._writing.stop()

    def _shake(self, received: bytes) -> None:
        assert self._tls is not None
        try:
            hello = self._tls.shake(received)
            # A handshake's few bytes always fit into an empty socket buffer.
            if hello:
                self._socket.send(hello)
        except OSError as error:
            self._broke(error)
            return
        self._writing.stop()
        if self._tls.ready:
            self._opened()
            self._flush()

    def _decrypted(self, packet: bytes) -> tuple[bytes, bool]:
        assert self._tls is not None
        if not self._tls.ready:
            self._shake(packet)
            return b"", False
        return self._tls.decrypt(packet)

    def _peer_closed(self, stamp_ns: int) -> None:
        exchange, self.exchange = self.exchange, None
        self.close()
        if exchange is not None:
            exchange.http.close()
            exchange.ended_ns = stamp_ns
        self._on_end(self, exchange)

    def _broke(self, error: OSError) -> None:
        self._over(*failure_of(error))

    def _over(self, failure: Failure, detail: str) -> None:
        exchange, self.exchange = self.exchange, None
        self.failure = failure, detail
        self.close()
        if exchange is not None:
            exchange.broke, exchange.detail = failure, detail
            if failure is Failure.DROPPED:
                exchange.sent_ns = None  # nothing left this machine
            exchange.ended_ns = time.perf_counter_ns()
        self._on_end(self, exchange)


def failure_of(error: OSError) -> tuple[Failure, str]:
    """The kind of a socket's error, and a line for a person."""
    words = f"{type(error).__name__}: {error.strerror or error}"
    if isinstance(error, socket.gaierror):
        return Failure.UNRESOLVED, words
    if isinstance(error, ssl.SSLError):
        return Failure.TLS, words
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return Failure.RESET, words
    if error.errno in OWN_LIMITS:
        return Failure.DROPPED, words
    if error.errno == errno.ETIMEDOUT:
        return Failure.CONNECT_TIMEOUT, words
    return Failure.REFUSED, words
