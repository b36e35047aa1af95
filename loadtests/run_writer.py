"""Writes a run directory; only the master (or the one process of a local run) does."""

import json
import platform
import re
import socket
import subprocess
import time
from array import array
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from os import cpu_count
from pathlib import Path
from typing import Any, BinaryIO

from loadtests.handover import Tally
from loadtests.options import Plan
from loadtests.preflight import Target
from loadtests.prompts import SCENARIOS, check
from loadtests.schedule import arrivals
from slo import rundir
from slo.rundir import Counts, Lateness, Run, Stopped, WorkerInfo


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
        self._lateness_us = array("I")
        self._target = target
        scheduled = 0

        def counted() -> Any:
            nonlocal scheduled
            for arrival in arrivals(plan.load):
                scheduled += 1
                yield arrival

        rundir.write_schedule(self.directory, counted())
        self.run = _new_run(self.directory.resolve().name, plan, target, now, scheduled)
        self._write_target(None)
        self._requests: BinaryIO = (self.directory / rundir.REQUESTS).open("ab")
        self._answers: BinaryIO | None = None
        if plan.store_answers:
            _write_checks(self.directory, plan)
            self._answers = (self.directory / rundir.ANSWERS).open("ab")

    def start(self, t0_mono_ns: int, t0_wall_ns: int, workers: tuple[WorkerInfo, ...]) -> None:
        """Write run.json for the first time, not finished."""
        self.run = replace(self.run, t0_mono_ns=t0_mono_ns, t0_wall_ns=t0_wall_ns, workers=workers)
        rundir.write_run(self.directory, self.run)

    def add(self, batch: dict[str, Any]) -> Tally:
        """Append a worker's batch, and say what was in it."""
        tally = Tally(**batch["tally"])
        self.total.add(tally)
        self._lateness_us.frombytes(batch["lateness_us"])
        self._requests.write(batch["lines"])
        self._requests.flush()
        if self._answers is not None:
            self._answers.write(batch["answers"])
            self._answers.flush()
        return tally

    def close(self, info: dict[str, Any] | None) -> None:
        """Close the logs, and write what is derived from them: the histograms."""
        self._requests.close()
        if self._answers is not None:
            self._answers.close()
        self._write_target(info)
        # Imported late: workers need no numpy.
        from slo.histograms import write_hlog

        write_hlog(self.directory)

    def finish(
        self, workers: tuple[WorkerInfo, ...], stopped: Stopped | None, *, finished: bool
    ) -> None:
        """Write run.json again, the last of all files."""
        total = self.total
        self.run = replace(
            self.run,
            workers=workers,
            counts=Counts(
                scheduled=self.run.counts.scheduled,
                sent=total.sent,
                completed=total.completed,
                failed=total.failed,
                dropped=total.dropped,
                not_started=self.not_started,
            ),
            lateness=lateness(self._lateness_us),
            finished=finished,
            stopped=stopped,
        )
        rundir.write_run(self.directory, self.run)

    def _write_target(self, end: dict[str, Any] | None) -> None:
        document = {"start": self._target.info, "end": end, "models": self._target.models}
        rundir.write_json(self.directory / rundir.TARGET, document)


def lateness(micros: "array[int]") -> Lateness | None:
    """Percentiles by rank ceil(p * N) of due to sent; None when nothing was sent."""
    if not micros:
        return None
    ordered = sorted(micros)
    at = [ordered[-(-len(ordered) * percent // 100) - 1] / 1000 for percent in (50, 95, 99)]
    return Lateness(at[0], at[1], at[2], ordered[-1] / 1000)


def _write_checks(directory: Path, plan: Plan) -> None:
    """Write checks.jsonl: by what each answer is graded, so that grading needs no load engine."""
    with (directory / rundir.CHECKS).open("w", encoding="utf-8") as file:
        for arrival in arrivals(plan.load):
            if arrival.scenario not in SCENARIOS:
                continue  # a user's own prompt, of which we know no answer
            known = {"seq": arrival.seq, "check": check(arrival.prompt_id)}
            file.write(json.dumps(known, ensure_ascii=False) + "\n")


def _default_directory(plan: Plan, now: datetime) -> Path:
    name = plan.label or "-".join(plan.load.mix)
    safe = re.sub(r"[^\w.-]+", "-", name).strip("-")
    return Path("runs") / f"{now:%Y%m%dT%H%M%SZ}-{safe}-{plan.load.rate_per_s:g}qps"


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
