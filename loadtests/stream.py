"""Sends one request and reads its streamed answer: packets with the time at which each came."""

import errno
import time

import gevent
from gevent import socket, ssl

from loadtests.chat_request import Origin
from loadtests.exchange import Exchange
from loadtests.http1 import AnswerReader, NotHttpError
from slo.record import Failure

# No fault of the server's: this machine has no file descriptor, port or memory left.
OWN_LIMITS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


def converse(place: Origin, request: bytes, deadline_ns: int, exchange: Exchange) -> None:
    """Fill an exchange, until the deadline at the latest; what breaks is noted, not raised."""
    clock = time.perf_counter_ns
    connection: socket.socket | None = None
    late = gevent.Timeout(max(0.001, (deadline_ns - clock()) / 1e9))
    late.start()
    try:
        exchange.broke = Failure.CONNECT_TIMEOUT
        connection = _connect(place)
        exchange.connected_ns = clock()
        exchange.broke = Failure.TIMEOUT_BEFORE_HEADERS
        exchange.sent_ns = clock()
        connection.sendall(request)
        _read(connection, exchange)
    except gevent.Timeout as timeout:
        if timeout is not late:
            raise
        exchange.detail = "nothing more came until the timeout"
    except gevent.GreenletExit:
        exchange.broke = Failure.CANCELLED
        exchange.detail = "in flight when the run was stopped"
    except OSError as error:
        exchange.broke, exchange.detail = failure_of(error)
    finally:
        late.close()
        exchange.ended_ns = clock()
        if connection is not None:
            connection.close()


def _connect(place: Origin) -> socket.socket:
    connection = socket.create_connection((place.host, place.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if place.tls:
        connection = ssl.create_default_context().wrap_socket(
            connection, server_hostname=place.host
        )
    return connection


def _read(connection: socket.socket, exchange: Exchange) -> None:
    reader = AnswerReader()
    while not reader.ended:
        packet = connection.recv(65536)
        stamp = time.perf_counter_ns()
        if not packet:
            exchange.closed = True
            break
        exchange.stamps_ns.append(stamp)
        exchange.packets.append(packet)
        try:
            reader.feed(packet)
        except NotHttpError:
            break
    exchange.broke = None


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
