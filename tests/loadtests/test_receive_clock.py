"""Whose clock a time is of, and that neither a busy process nor a stepped clock spoils it."""

import socket
import time
from typing import Any

import pytest

from loadtests import receive_clock
from loadtests.receive_clock import KERNEL, PROCESS, ROOM, ReceiveClock


@pytest.fixture
def pair() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
        with ours, theirs:
            yield ours, theirs


def wait_until_the_kernel_stamps(clock: ReceiveClock, ours: Any, theirs: Any) -> None:
    """The kernel begins some time after the first socket asks; until then it stamps on reading."""
    for _ in range(500):
        theirs.send(b"x")
        time.sleep(0.01)
        clock.refresh()
        _, beside, _, _ = ours.recvmsg(100, ROOM)
        if time.perf_counter_ns() - clock.came_ns(beside) > 5_000_000:
            return
    pytest.fail("in 5 s no packet bore the time that it came in")


def test_a_busy_process_reads_late_and_knows_when_bytes_came(pair: Any) -> None:
    ours, theirs = pair
    clock = ReceiveClock(KERNEL)
    assert clock.stamp(ours)
    wait_until_the_kernel_stamps(clock, ours, theirs)
    after_sending_ns = []
    for _ in range(5):
        sent_ns = time.perf_counter_ns()
        theirs.send(b"x")
        time.sleep(0.05)
        clock.refresh()
        _, beside, _, _ = ours.recvmsg(100, ROOM)
        after_sending_ns.append(clock.came_ns(beside) - sent_ns)
    assert min(after_sending_ns) >= 0
    assert sorted(after_sending_ns)[2] < 20_000_000  # one of them may meet a busy machine
    assert clock.kind == KERNEL


def test_our_own_reading_is_taken_where_the_kernel_does_not_stamp(pair: Any) -> None:
    ours, theirs = pair
    clock = ReceiveClock(PROCESS)
    assert not clock.stamp(ours)
    theirs.send(b"x")
    time.sleep(0.02)
    _, beside, _, _ = ours.recvmsg(100, ROOM)
    before_ns = time.perf_counter_ns()
    assert clock.came_ns(beside) >= before_ns
    assert clock.kind == PROCESS


@pytest.mark.parametrize("step_s", [-3600.0, -0.5, 0.5, 3600.0])
def test_a_stepped_wall_clock_moves_no_time_and_is_noticed(
    pair: Any, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    clock = ReceiveClock(KERNEL)
    clock.stamp(ours)
    theirs.send(b"x")
    time.sleep(0.01)
    _, beside, _, _ = ours.recvmsg(100, ROOM)
    # The packet's stamp is of the clock before the step, our reading of the offset after it.
    wall_ns = time.time_ns
    monkeypatch.setattr(receive_clock.time, "time_ns", lambda: wall_ns() + round(step_s * 1e9))
    for _ in range(10):
        clock.refresh()
    assert abs(clock.came_ns(beside) - time.perf_counter_ns()) < 150_000_000
    assert clock.largest_step_ns == pytest.approx(abs(step_s) * 1e9, abs=5e6)
