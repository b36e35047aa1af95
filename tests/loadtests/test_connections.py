"""Connections: opened ahead, used again, over TLS, and closed by the peer at any moment."""

import gc
import statistics
import time
from pathlib import Path

import gevent
import pytest

from loadtests.chat_request import origin
from loadtests.outcome import Outcome
from loadtests.precise_timer import PreciseTimer
from loadtests.stream import converse
from slo.record import Failure
from tests.loadtests.fault_server import fault_server
from tests.loadtests.loops import one, outcomes, plan

CERTIFICATE = Path(__file__).with_name("localhost.pem")


def failures(ended: list[Outcome]) -> list[str | None]:
    return [outcome.record.error_detail for outcome in ended if outcome.record.error is not None]


def test_connections_are_open_before_they_are_needed_and_used_again() -> None:
    with fault_server() as (url, seen):
        ended, _ = outcomes(plan(url, "/ok", rate_per_s=40.0, duration_s=1.0))
    assert failures(ended) == []
    assert len(ended) == len(seen.requests) == 40
    waited = [outcome for outcome in ended if outcome.record.connected_s is not None]
    assert len(waited) < 20  # the server runs in this very process: now and then it is slow
    assert seen.connections < 30


def test_a_server_that_closes_each_connection_after_its_answer_fails_no_request() -> None:
    with fault_server() as (url, seen):
        ended, _ = outcomes(plan(url, "/ok_then_close", rate_per_s=40.0, duration_s=1.0))
    assert failures(ended) == []
    assert seen.connections >= 40


def test_one_of_several_addresses_that_listens_is_found() -> None:
    with fault_server() as (url, _):
        outcome = one(plan(url.replace("127.0.0.1", "localhost")))
    assert outcome.record.error is None


def test_a_request_larger_than_any_buffer_is_sent_whole() -> None:
    size = 20_000_000
    with fault_server() as (url, seen):
        head = b"POST /ok HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
        exchange = converse(origin(url), head + bytes(size), 20.0)
    assert exchange.broke is None
    assert exchange.http.ended
    assert seen.requests == [head + bytes(size)]


def test_a_stream_over_tls_reads_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with fault_server(CERTIFICATE) as (url, seen):
        ended, _ = outcomes(plan(url, "/ok", rate_per_s=20.0, duration_s=1.0))
    assert failures(ended) == []
    assert {outcome.answer for outcome in ended} == {"Hello"}
    assert len(seen.requests) == 20


def test_a_certificate_that_nobody_vouches_for_fails_by_tls() -> None:
    with fault_server(CERTIFICATE) as (url, _):
        record = one(plan(url)).record
    assert record.error is Failure.TLS
    assert record.error_detail is not None
    assert "certificate verify failed" in record.error_detail
    assert record.connected_s is None


def test_the_garbage_collector_is_as_it_was_after_a_run() -> None:
    with fault_server() as (url, _):
        one(plan(url))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_requests_are_sent_when_due_and_never_before() -> None:
    with fault_server() as (url, _):
        ended, _ = outcomes(plan(url, rate_per_s=50.0, duration_s=1.0))
    late_ms = [(o.record.sent_s - o.record.due_s) * 1e3 for o in ended]  # type: ignore[operator]
    assert min(late_ms) >= 0.0
    assert statistics.median(late_ms) < 10.0  # the server's thread holds the interpreter for 5 ms


@pytest.mark.parametrize("kernel", [True, False])
def test_a_timer_calls_back_once_and_never_early(
    kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        monkeypatch.setattr("loadtests.precise_timer._kernel_timer", lambda: (None, None))
    fired: list[int] = []
    timer = PreciseTimer(lambda: fired.append(time.perf_counter_ns()))
    for _ in range(3):
        at_ns = time.perf_counter_ns() + 5_000_000
        timer.arm(at_ns)
        gevent.sleep(0.03)
        assert len(fired) == 1
        assert fired.pop() >= at_ns
    timer.arm(time.perf_counter_ns() + 5_000_000)
    timer.disarm()
    gevent.sleep(0.02)
    timer.close()
    assert fired == []
