"""A worker's side of a run: wait for the start, send what is due, hand over what came of it."""

import logging
import os
import socket
import time
import traceback
from dataclasses import replace
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from loadtests.clock_sync import boot_id
from loadtests.handover import END, PING, PONG, READY, RECORDS, START, STOP, Desk
from loadtests.open_loop import OpenLoop
from loadtests.outcome import Outcome
from loadtests.plan import Plan, plan_of

HAND_OVER_S = 0.2  # often and little: what takes long delays stamps

log = logging.getLogger(__name__)


class CrewMember:
    """One worker process."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._runner = environment.runner
        self._started = AsyncResult()
        self._loop: OpenLoop | None = None
        self._stop_why: str | None = None
        self._begun = False
        self.ended = Event()
        self._runner.register_message(START, self._on_start)
        self._runner.register_message(STOP, self._on_stop)
        self._runner.register_message(PING, self._on_ping)

    def work(self) -> None:
        """Do this worker's part of the run; a second user in the same process has none."""
        if self._begun:
            return
        self._begun = True
        self._say(READY, {"name": f"{socket.gethostname()}:{os.getpid()}", "boot_id": boot_id()})
        start = self._started.get()
        desk = Desk(keep_answers=False)
        fault: str | None = None
        try:
            plan = self._plan(start)
            desk = Desk(keep_answers=plan.store_answers)
            self._run(plan, start, desk)
        except Exception as error:
            log.error("the load engine failed:\n%s", traceback.format_exc())
            fault = f"{type(error).__name__}: {error}"
        self._hand_over(desk)
        loop = self._loop
        end = desk.end(loop.not_started if loop else 0, fault)
        end["client"] = loop.client() if loop else None
        end |= {"stopped": None, "planned": True, "for_all": False, "at_s": 0.0}
        if loop is not None and loop.stopped is not None:
            end |= {"stopped": loop.stopped, "planned": loop.planned}
            end |= {"for_all": loop.for_all, "at_s": loop.stopped_at_s}
        self._say(END, end)
        self.ended.set()

    def stop(self, why: str, *, planned: bool = False) -> None:
        """Stop this worker early."""
        self._stop_why = why
        if self._loop is not None:
            self._loop.stop(why, planned=planned)

    @property
    def running(self) -> bool:
        """Whether it has a part in a run that has not ended."""
        return self._loop is not None and not self.ended.is_set()

    def _plan(self, start: dict[str, Any]) -> Plan:
        environment = self._environment
        plan = plan_of(environment.parsed_options, environment.host, start["workers"])
        return replace(plan, model=start["model"], reasoning=start["reasoning"])

    def _run(self, plan: Plan, start: dict[str, Any], desk: Desk) -> None:
        def report(outcome: Outcome) -> None:
            desk.add(outcome)
            self._tell_locust(outcome)

        loop = self._loop = OpenLoop(plan, start["index"], start["t0_ns"], report)
        if self._stop_why is not None:
            loop.stop(self._stop_why, planned=False)
        steady = gevent.spawn(self._hand_over_steadily, desk)
        try:
            loop.run()
        finally:
            steady.kill()

    def _hand_over_steadily(self, desk: Desk) -> None:
        due_s = time.monotonic()
        while True:
            due_s += HAND_OVER_S
            gevent.sleep(max(0.0, due_s - time.monotonic()))
            self._hand_over(desk)

    def _hand_over(self, desk: Desk) -> None:
        batch = desk.batch()
        if batch is not None:
            self._say(RECORDS, batch)

    def _tell_locust(self, outcome: Outcome) -> None:
        record = outcome.record
        ended_s = record.due_s if record.ended_s is None else record.ended_s
        self._environment.events.request.fire(
            request_type="SSE",
            name=record.scenario,
            response_time=(ended_s - record.due_s) * 1e3,
            response_length=outcome.received_bytes,
            exception=record.error and str(record.error),
            context={},
            response=None,
        )

    def _say(self, kind: str, data: dict[str, Any]) -> None:
        self._runner.send_message(kind, data)

    def _on_start(self, environment: Any, msg: Any, **_: Any) -> None:
        self._started.set(msg.data)

    def _on_stop(self, environment: Any, msg: Any, **_: Any) -> None:
        self.stop(msg.data["why"], planned=msg.data["planned"])

    def _on_ping(self, environment: Any, msg: Any, **_: Any) -> None:
        self._say(PONG, {"mono_ns": time.perf_counter_ns()})
