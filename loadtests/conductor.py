"""The master's side of a run: start workers on one clock, write what they hand over, end it.

A local run has one worker in the same process; the messages are the same.
"""

import contextlib
import logging
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from loadtests import clock_sync
from loadtests.handover import END, PING, PONG, READY, RECORDS, START, STOP, Tally
from loadtests.plan import Plan
from loadtests.preflight import TargetError, ask, listed_models, look
from loadtests.reasoning import UNKNOWN
from loadtests.run_writer import RunWriter
from slo.rundir import RunDirError, Stopped, WorkerInfo

COMPLETE, UNUSABLE, INCOMPLETE = 0, 2, 4

READY_WITHIN_S = 30.0
LEAD_S = 0.5  # from the start message to t0, so that every worker is waiting when it comes
SILENT_S = 5.0  # a worker that Locust misses and that said nothing for so long is lost
STOP_WITHIN_S = 15.0  # from a stop to the last worker's end

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Worker:
    """What the master knows of one worker."""

    info: WorkerInfo
    heard_s: float
    handed_over: int = 0
    end: dict[str, Any] | None = None

    @property
    def called(self) -> str:
        """Its number and name, for a person."""
        return f"worker {self.info.index} ({self.info.name})"


class Conductor:
    """Conducts one run."""

    def __init__(self, environment: Any, plan: Plan) -> None:
        self.writer: RunWriter | None = None
        self.ended = Event()
        self.leaving = False  # Locust is on its way out already
        self._environment = environment
        self._runner = environment.runner
        self._plan = plan
        self._workers: dict[str, Worker] = {}
        self._begun = False
        self._t0_ns = 0
        self._stopped: Stopped | None = None
        self._faults: list[str] = []
        self._late: dict[str, str] = {}  # workers that came when the run had begun
        self._pings = clock_sync.Pings()
        self._everyone_ready = Event()
        self._stop_by_s = float("inf")
        for name, listener in ((READY, self._on_ready), (PONG, self._on_pong)):
            self._runner.register_message(name, listener)
        for name, listener in ((RECORDS, self._on_records), (END, self._on_end)):
            self._runner.register_message(name, listener)

    @property
    def running(self) -> bool:
        """Whether a run has begun and not ended."""
        return self._begun and not self.ended.is_set()

    def begin(self) -> None:
        """Look at the target, write the plan, and conduct the run beside Locust's own work."""
        if self._begun:
            log.error("one run a process: start Locust again")
            gevent.spawn(self._runner.stop)
            return
        self._begun = True
        try:
            target = look(self._plan)
            self.writer = RunWriter(self._plan, target)
        except (TargetError, RunDirError, OSError) as error:
            self._give_up(str(error))
            return
        if target.reasoning == UNKNOWN:
            log.warning("a trial answer did not tell how reasoning is marked; declare --reasoning")
        self._plan = replace(self._plan, model=target.model, reasoning=target.reasoning)
        gevent.spawn(self._conduct).link_exception(self._on_fault)

    def stop(self, why: str) -> None:
        """Cut the run short, for a reason that was not planned."""
        self._faults.append(why)
        self._stopped = self._stopped or Stopped(self._now_s(), why)
        self._stop_by_s = min(self._stop_by_s, time.monotonic() + STOP_WITHIN_S)
        if self.writer is None:
            self._give_up(f"{why} before the run began", INCOMPLETE)
        self._everyone_ready.set()
        self._tell_stop(why, planned=False)

    def _tell_stop(self, why: str, *, planned: bool) -> None:
        for name, worker in self._workers.items():
            if worker.end is None:
                self._runner.send_message(STOP, {"why": why, "planned": planned}, name)

    def _give_up(self, words: str, code: int = UNUSABLE) -> None:
        if not self.ended.is_set():
            self._end_with(code, words)

    def _end_with(self, code: int, words: str | None) -> None:
        self._environment.process_exit_code = code
        self.ended.set()
        if not self.leaving:
            gevent.spawn(self._leave)
        if words:
            with contextlib.suppress(OSError):  # the disk may be full for the log, too
                sys.stderr.write(f"locust: {words}\n")

    def _leave(self) -> None:
        options = self._environment.parsed_options
        if options.headless:
            self._runner.quit()
            return
        self._runner.stop()  # the web UI stays ...
        if options.autostart and options.autoquit >= 0:
            gevent.sleep(options.autoquit)  # ... or not: Locust itself does this after -t only
            self._runner.quit()
            self._environment.web_ui.stop()

    # What workers say

    def _on_ready(self, environment: Any, msg: Any, **_: Any) -> None:
        if msg.node_id in self._workers or len(self._workers) >= self._plan.workers:
            self._late[msg.node_id] = msg.data["name"]
            log.warning("worker %s came too late and has no part in this run", msg.data["name"])
            return
        info = WorkerInfo(len(self._workers), msg.data["name"], 0, 0)
        self._workers[msg.node_id] = Worker(info, time.monotonic())
        self._pings.note_host(msg.node_id, msg.data["boot_id"])
        if len(self._workers) == self._plan.workers:
            self._everyone_ready.set()

    def _on_pong(self, environment: Any, msg: Any, **_: Any) -> None:
        self._pings.answer(msg.node_id, msg.data)

    def _on_records(self, environment: Any, msg: Any, **_: Any) -> None:
        worker = self._workers.get(msg.node_id)
        if worker is None or self.writer is None:
            return
        worker.heard_s = time.monotonic()
        try:
            worker.handed_over += self.writer.add(msg.data).records
        except OSError as error:
            if self._stopped is None:
                self.stop(f"records could not be written: {error.strerror}")

    def _on_end(self, environment: Any, msg: Any, **_: Any) -> None:
        worker = self._workers.get(msg.node_id)
        if worker is None or self.writer is None:
            return
        end = worker.end = msg.data
        claimed = Tally(**end["tally"]).records
        worker.info = replace(worker.info, records=claimed)
        self.writer.not_started += end["not_started"]
        if claimed != worker.handed_over:
            self._faults.append(
                f"{worker.called} ended {claimed} arrivals and handed over {worker.handed_over}"
            )
        if end["fault"]:
            self.stop(f"{worker.called} failed: {end['fault']}")
        if end["stopped"]:
            self._stopped = self._stopped or Stopped(end["at_s"], end["stopped"])
            if not end["planned"]:
                self._faults.append(end["stopped"])
            if end["for_all"]:
                self._tell_stop(end["stopped"], planned=end["planned"])

    # The run itself

    def _conduct(self) -> None:
        assert self.writer is not None
        if not self._everyone_ready.wait(READY_WITHIN_S):
            self._give_up(
                f"{len(self._workers)} of {self._plan.workers} workers were ready"
                f" within {READY_WITHIN_S:g} s"
            )
            return
        if self._stopped is not None:
            self.writer.not_started = self.writer.run.counts.scheduled
            self._workers.clear()
        else:
            self._start_workers()
            self._await_workers()
        self._finish()

    def _await_workers(self) -> None:
        load = self._plan.load
        longest_s = load.end_s + load.turns * (self._plan.timeout_s + load.think_s)
        over_s = time.monotonic() + LEAD_S + longest_s + STOP_WITHIN_S
        while silent := [name for name, worker in self._workers.items() if worker.end is None]:
            gevent.sleep(0.05)
            lost = [name for name in silent if self._is_lost(name)]
            if lost and self._stopped is None:
                self.stop(f"{self._workers[lost[0]].called} was lost")
            if lost == silent or time.monotonic() > min(over_s, self._stop_by_s):
                return

    def _start_workers(self) -> None:
        assert self.writer is not None
        for name, worker in self._workers.items():
            send = partial(self._runner.send_message, PING, {}, name)
            offset_ns, bound_ns = self._pings.measure(name, send)
            worker.info = replace(worker.info, clock_offset_ns=offset_ns, clock_bound_ns=bound_ns)
        self._t0_ns = time.perf_counter_ns() + round(LEAD_S * 1e9)
        t0_wall_ns = time.time_ns() + round(LEAD_S * 1e9)
        self.writer.start(self._t0_ns, t0_wall_ns, self._infos())
        for name, worker in self._workers.items():
            start = {
                "index": worker.info.index,
                "workers": self._plan.workers,
                "t0_ns": self._t0_ns + worker.info.clock_offset_ns,
                "model": self._plan.model,
                "reasoning": self._plan.reasoning,
            }
            worker.heard_s = time.monotonic()
            self._runner.send_message(START, start, name)

    def _is_lost(self, name: str) -> bool:
        clients = getattr(self._runner, "clients", None)
        if clients is None or self._workers[name].end is not None:
            return False
        node = clients.get(name)
        silent_s = time.monotonic() - self._workers[name].heard_s
        return (node is None or node.state == "missing") and silent_s > SILENT_S

    def _finish(self) -> None:
        assert self.writer is not None
        missing = [worker.called for worker in self._workers.values() if worker.end is None]
        self._faults += [f"{who} was lost" for who in missing]
        self._look_at_clocks()
        scheduled = self.writer.scheduled
        unaccounted = scheduled - self.writer.total.records - self.writer.not_started
        if unaccounted and not self._plan.load.process.closed:
            self._faults.append(f"{unaccounted} of {scheduled} arrivals have no record")
        try:
            self.writer.close(ask(self._plan, "/info"), listed_models(self._plan))
        except Exception as error:  # the counts are worth more than the histograms
            log.exception("the run directory could not be completed")
            self._faults.append(f"the run directory could not be completed: {error!r}")
        stopped = self._stopped
        if self._faults:
            at_s = stopped.at_s if stopped else self._now_s()
            stopped = Stopped(at_s, "; ".join(dict.fromkeys(self._faults)))
        finished = not self._faults
        ends = [worker.end for worker in self._workers.values() if worker.end is not None]
        clients = [end["client"] for end in ends if end["client"] is not None]
        try:
            self.writer.finish(
                self._infos(), stopped, clients, self._late_workers(), finished=finished
            )
        except OSError as error:
            finished = False
            stopped = stopped or Stopped(self._now_s(), f"run.json: {error.strerror}")
        code = COMPLETE if finished else INCOMPLETE
        self._end_with(code, f"stopped: {stopped.why}" if stopped else None)

    def _look_at_clocks(self) -> None:
        """Whether a worker's clock ran as ours did: what it went off by is not known any better."""
        for name, worker in self._workers.items():
            if worker.end is None or self._pings.same_clock(name) or not self._t0_ns:
                continue
            send = partial(self._runner.send_message, PING, {}, name)
            with contextlib.suppress(gevent.Timeout):
                offset_ns, bound_ns = self._pings.measure(name, send)
                went_ns = abs(offset_ns - worker.info.clock_offset_ns)
                known_ns = max(worker.info.clock_bound_ns, went_ns, bound_ns)
                worker.info = replace(worker.info, clock_bound_ns=known_ns)

    def _late_workers(self) -> tuple[str, ...]:
        connected = getattr(self._runner, "clients", {})
        late = [str(name) for name in connected if name not in self._workers]
        return tuple(self._late.get(name, name) for name in dict.fromkeys([*self._late, *late]))

    def _on_fault(self, greenlet: Any) -> None:
        self._end_with(INCOMPLETE, f"the run could not be ended: {greenlet.exception!r}")

    def _infos(self) -> tuple[WorkerInfo, ...]:
        return tuple(worker.info for worker in self._workers.values())

    def _now_s(self) -> float:
        return round((time.perf_counter_ns() - self._t0_ns) / 1e9, 6) if self._t0_ns else 0.0
