"""A rate that this machine cannot send: the run ends all the same, and says what became of it."""

import socket
import time
from collections import Counter

from loadtests.agenda import Agenda
from loadtests.schedule import arrivals
from slo.record import Failure
from tests.loadtests.fault_server import fault_server
from tests.loadtests.loops import outcomes, plan


def test_while_it_is_behind_timeouts_are_kept() -> None:
    """Sent in one go, as long as arrivals are due, they would hold all else up for a second."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = plan(url, rate_per_s=20_000.0, timeout_s=0.3, max_in_flight=30_000)
        ended, loop = outcomes(asked)
    records = [outcome.record for outcome in ended]
    assert loop.stopped is None
    assert len(records) == 20_000
    sent = [record for record in records if record.sent_s is not None]
    assert {record.error for record in records if record.sent_s is None} == {Failure.DROPPED}
    assert len(sent) > 100
    assert max(r.ended_s - r.due_s for r in sent) < 0.8  # type: ignore[operator]


def test_for_what_is_over_its_timeout_no_prompt_is_made() -> None:
    late = time.perf_counter_ns() - 60 * 10**9
    for turns in (1, 3):
        agenda = Agenda(plan("http://x", turns=turns, timeout_s=5.0), 0, late)
        agenda.prepare()
        ready = agenda.next()
        assert ready is not None
        assert ready.wire == b""


def test_later_turns_of_what_was_dropped_are_skipped() -> None:
    with fault_server() as (url, _):
        ended, _ = outcomes(plan(url, rate_per_s=5.0, turns=3, timeout_s=3.0), late_s=60.0)
    assert Counter(o.record.error for o in ended) == {Failure.DROPPED: 5, Failure.SKIPPED: 10}


def test_a_schedule_that_cannot_be_walked_is_left_with_a_count() -> None:
    began = time.monotonic()
    asked = plan("http://127.0.0.1:9", rate_per_s=10_000.0, duration_s=20.0, timeout_s=0.5)
    ended, loop = outcomes(asked, late_s=30.0)
    assert loop.stopped == "the generator was too slow for this rate, even to say so"
    assert not loop.planned
    assert len(ended) + loop.not_started == sum(1 for _ in arrivals(asked.load))
    assert {outcome.record.error for outcome in ended} == {Failure.DROPPED}
    assert len(ended) < 20_000
    assert time.monotonic() - began < 15
