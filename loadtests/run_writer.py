"""Writes a run directory; only the master (or the one process of a local run) does."""

import json
import platform
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import islice
from os import cpu_count
from pathlib import Path
from typing import Any, BinaryIO

from loadtests.handover import Tally
from loadtests.plan import Plan
from loadtests.preflight import Target
from loadtests.prompts import check
from loadtests.receive_clock import KERNEL, PROCESS
from loadtests.schedule import OWN, arrivals
from loadtests.spread import Spread
from slo import rundir
from slo.record import Arrival
from slo.rundir import Client, Counts, Run, Stopped, WorkerInfo


class RunWriter:
    """One run directory, from the schedule before the first request to the histograms."""

    def __init__(self, plan: Plan, target: Target) -> None:
        """Make the directory and write what is known before the first request.

        Raises:
            RunDirError: it holds a run already, or cannot be made.
        """
        now = datetime.now(UTC)
        self.directory = rundir.create(
            Path(plan.out) if plan.out else _default_directory(plan, now), force=plan.force
        )
        self.total = Tally()
        self.not_started = 0
        self.scheduled = 0
        self._plan = plan
        self._lateness = Spread()
        self._target = target
        # A closed loop has no plan: what it asks is known when it was asked.
        planned = () if plan.load.process.closed else arrivals(plan.load)
        rundir.write_schedule(self.directory, self._counted(planned))
        self.run = _new_run(self.directory.resolve().name, plan, target, now, self.scheduled)
        self._write_target(None, None)
        self._requests: BinaryIO = (self.directory / rundir.REQUESTS).open("ab")
        self._answers: BinaryIO | None = None
        if plan.store_answers:
            _write_checks(self.directory, () if plan.load.process.closed else arrivals(plan.load))
            self._answers = (self.directory / rundir.ANSWERS).open("ab")

    def _counted(self, planned: Iterable[Arrival]) -> Iterator[Arrival]:
        for arrival in planned:
            self.scheduled += 1
            yield arrival

    def start(self, t0_mono_ns: int, t0_wall_ns: int, workers: tuple[WorkerInfo, ...]) -> None:
        """Write run.json for the first time, not finished."""
        self.run = replace(self.run, t0_mono_ns=t0_mono_ns, t0_wall_ns=t0_wall_ns, workers=workers)
        rundir.write_run(self.directory, self.run)

    def add(self, batch: dict[str, Any]) -> Tally:
        """Append a worker's batch, and say what was in it."""
        tally = Tally(**batch["tally"])
        self.total.add(tally)
        for micros in memoryview(batch["lateness_us"]).cast("I"):
            self._lateness.add(micros)
        self._requests.write(batch["lines"])
        self._requests.flush()
        if self._answers is not None:
            self._answers.write(batch["answers"])
            self._answers.flush()
        return tally

    def close(self, info: dict[str, Any] | None, models: list[Any] | None) -> None:
        """Close the logs, and write what is derived from them: the histograms."""
        self._requests.close()
        if self._answers is not None:
            self._answers.close()
        self._write_target(info, models)
        if self._plan.load.process.closed:
            self._write_what_was_asked()
        # Imported late: workers need no numpy.
        from slo.histograms import write_hlog

        write_hlog(self.directory)

    def finish(
        self,
        workers: tuple[WorkerInfo, ...],
        stopped: Stopped | None,
        clients: list[dict[str, Any]],
        late_workers: tuple[str, ...],
        *,
        finished: bool,
    ) -> None:
        """Write run.json again, the last of all files."""
        total, run = self.total, self.run
        if self._plan.load.process.closed and (took_s := self._took_s(stopped)):
            run = replace(run, rate_per_s=round(total.records / took_s, 3))
        clocks = {client["receive_clock"] for client in clients}
        self.run = replace(
            run,
            workers=workers,
            counts=Counts(
                scheduled=self.scheduled,
                sent=total.sent,
                completed=total.completed,
                failed=total.failed,
                dropped=total.dropped,
                not_started=self.not_started,
            ),
            lateness=self._lateness.percentiles(),
            receive_clock=None if not clocks else KERNEL if clocks == {KERNEL} else PROCESS,
            client=_client(clients, late_workers),
            finished=finished,
            stopped=stopped,
        )
        rundir.write_run(self.directory, self.run)

    def _took_s(self, stopped: Stopped | None) -> float:
        end_s = self._plan.load.end_s
        return end_s if stopped is None else min(stopped.at_s, end_s)

    def _write_what_was_asked(self) -> None:
        """schedule.csv of a closed loop, and by what its answers are graded."""
        lines = rundir.read_lines(self.directory / rundir.REQUESTS)
        asked = {record["seq"] for record in lines}
        upto = max(asked, default=-1) + 1
        every = islice(arrivals(self._plan.load), upto)
        rows = [arrival for arrival in every if arrival.seq in asked]
        rundir.write_schedule(self.directory, self._counted(rows))
        if self._answers is not None:
            _write_checks(self.directory, rows)

    def _write_target(self, end: dict[str, Any] | None, models: list[Any] | None) -> None:
        """What the target says of itself; `models_end` is None until the end, and where unknown."""
        document = {"start": self._target.info, "models": self._target.models}
        document |= {"end": end, "models_end": models}
        rundir.write_json(self.directory / rundir.TARGET, document)


def _client(clients: list[dict[str, Any]], late: tuple[str, ...]) -> Client | None:
    """All workers in one: sums, and the busiest of them."""
    if not clients:
        return None
    lag, connects = Spread(), Spread()
    for client in clients:
        lag.merge(client["loop_lag"])
        connects.merge(client["connects"])
    return Client(
        cpu_share=max(client["cpu_share"] for client in clients),
        rss_mib=max(client["rss_mib"] for client in clients),
        loop_lag=lag.percentiles(),
        connects=sum(count for _, count in connects.pairs()),
        connect=connects.percentiles(),
        clock_step_ms=max(client["clock_step_ns"] for client in clients) / 1e6,
        late_workers=late,
    )


def _write_checks(directory: Path, asked: Iterable[Arrival]) -> None:
    """Write checks.jsonl: by what each answer is graded, so that grading needs no load engine."""
    with (directory / rundir.CHECKS).open("w", encoding="utf-8") as file:
        for arrival in asked:
            if arrival.scenario == OWN:
                continue  # nobody told us the right answer
            known = {"seq": arrival.seq, "check": check(arrival.prompt_id)}
            file.write(json.dumps(known, ensure_ascii=False) + "\n")


def _default_directory(plan: Plan, now: datetime) -> Path:
    load = plan.load
    name = rundir.name_of_load(plan.label, load.mix, load.rate_per_s, load.arrival)
    return rundir.default_directory(name, now)


def _new_run(name: str, plan: Plan, target: Target, now: datetime, scheduled: int) -> Run:
    load = plan.load
    return Run(
        id=name,
        label=plan.label,
        seed=load.seed,
        arrival=load.arrival,
        rate_per_s=load.rate_per_s,
        duration_s=load.duration_s,
        warmup_s=load.warmup_s,
        mix=load.mix,
        target_url=plan.url,
        api_path=plan.api_path,
        model=target.model,
        timeout_s=plan.timeout_s,
        max_in_flight=plan.max_in_flight,
        sampling={
            "temperature": plan.temperature,
            "top_p": plan.top_p,
            "max_tokens": load.max_tokens,
            "min_tokens": plan.min_tokens,
        },
        reasoning=target.reasoning,
        versions=_versions(),
        git_sha=_git_sha(),
        host={
            "name": socket.gethostname(),
            "system": platform.platform(),
            "cpus": cpu_count() or 0,
        },
        workers=(),
        started_at=now.isoformat(timespec="seconds"),
        t0_wall_ns=time.time_ns(),
        t0_mono_ns=time.perf_counter_ns(),
        counts=Counts(scheduled),
        input_class=load.input_class,
        ignore_eos=plan.ignore_eos,
        options={
            "turns": load.turns,
            "think_s": load.think_s,
            "shared_prefix": load.shared_prefix or load.trace_shared,
            "shared_by": "trace" if load.trace_shared else None,
            "stretched": load.stretched or None,
            "prompts": load.prompts,
            "tokenizer": plan.tokenizer,
            "connections": "fresh" if plan.fresh_connections else "reused",
        },
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("tailgate", "locust", "gevent"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # run from a checkout that is not installed
    return found


def _git_sha() -> str | None:
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
