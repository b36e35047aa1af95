"""One night: each target is measured and put on record; whatever goes wrong is on record too."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from slo import capacity_probe, capacity_run, drive, slofile
from slo.capacity_probe import Setting
from slo.drive import DriveError
from slo.ending import UsageError
from slo.fingerprint import fingerprint
from slo.history import History, Night, Status
from slo.nightly_config import Nightly, Target
from slo.objectives import Slo
from slo.rundir import RunDirError
from slo.summarise import summarise
from slo.target_probe import TargetError
from slo.verdict import Result

LOCK = ".lock"
MIB = 1 << 20
# What is kept of the fixed load: continuous numbers, far finer than a capacity.
_METRICS = ("ttft", "e2e", "tpot")
_PERCENTILES = (50.0, 95.0)
Free = Callable[[Path], int]


class OverlapError(UsageError):
    """Another nightly is still at work in this folder."""


def free_bytes(path: Path) -> int:
    """Free space where a folder lies."""
    return shutil.disk_usage(path).free


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one nightly at a time in a folder; the lock goes with the process, however it ends.

    Raises:
        OverlapError: another one holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "another process"
            raise OverlapError(f"{folder}: another nightly is at work: {who}") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        file.flush()
        yield


def night_of(
    config: Nightly, history: History, console: Console, *, free: Free = free_bytes
) -> list[Night]:
    """Measure every target and put it on record; a failing one does not keep others from it."""
    nights = []
    now = datetime.now(UTC)
    prune(config, history, now, console)
    for target in config.targets:
        folder = config.out / target.name / f"{now:%Y%m%dT%H%M%SZ}"
        start = Night(target.name, now, "measured", directory=str(folder))
        night = _guarded(config, target, start, console, free)
        history.add(night)
        nights.append(night)
        console.print(in_words(night), markup=False, highlight=False, soft_wrap=True)
        if night.status == "stopped":
            raise KeyboardInterrupt
    return nights


def _guarded(config: Nightly, target: Target, night: Night, console: Console, free: Free) -> Night:
    room = free(config.out) / MIB
    if room < config.min_free_mib:
        why = f"{room:,.0f} MiB are free, needed are {config.min_free_mib:,.0f}"
        return replace(night, status="no space", why=why, directory="")
    try:
        return _measured(target, night, console)
    except KeyboardInterrupt:
        return replace(night, status="stopped", why="stopped by a signal")
    except TargetError as error:
        return replace(night, status="target down", why=str(error))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        status: Status = "no space" if full else "fault"
        shutil.rmtree(night.directory, ignore_errors=True)  # half a run is no evidence
        return replace(night, status=status, why=str(error), directory="")
    except (DriveError, RunDirError, UsageError, slofile.SloFileError) as error:
        return replace(night, status="fault", why=str(error))


def _measured(target: Target, night: Night, console: Console) -> Night:
    slo = slofile.load_slo(target.slo)
    folder = Path(night.directory)
    values: dict[str, float] = {}
    problems: list[str] = []
    if target.fixed is not None:
        found, problem = _fixed(target, slo, folder / "fixed", console)
        values |= found
        problems += [problem] if problem else []
    if target.capacity is not None:
        try:
            found, problem = _capacity(target, slo, folder / "capacity", console)
        except (TargetError, DriveError, RunDirError, UsageError) as error:
            if not values:
                raise
            found, problem = {}, f"capacity: {error}"  # what was measured before stays
        values |= found
        problems += [problem] if problem else []
    status: Status = "measured" if values else "invalid"
    facts = fingerprint(target.url, target.api_key_env)
    return replace(night, status=status, why="; ".join(problems), values=values, fingerprint=facts)


def _load(target: Target, slo: Slo) -> drive.Load:
    load = asdict(slo.load)
    kept = {name: load[name] for name in ("arrival", "mix", "input_class", "max_tokens")}
    return drive.Load(
        target=target.url, rate_per_s=1.0, duration_s=1.0, **kept, model=target.model, seed=1,
        api_key_env=target.api_key_env, label="nightly",
    )  # fmt: skip


def _fixed(
    target: Target, slo: Slo, folder: Path, console: Console
) -> tuple[dict[str, float], str]:
    assert target.fixed is not None
    # The same seed each night: the same prompts at the same moments, so that only the server moves.
    load = replace(
        _load(target, slo), rate_per_s=target.fixed.rate, duration_s=target.fixed.duration
    )
    _, code = drive.run(
        load, folder, force=False, ready_timeout_s=target.ready_timeout, gpu=target.sidecar,
        console=console,
    )  # fmt: skip
    if code == drive.EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    judged = capacity_probe.read_probe(
        folder, capacity_probe.judged_by(slo), target.fixed.rate, 0.0, folder.parent
    )
    if judged.result is Result.INVALID:
        return {}, judged.why
    summary = summarise(folder)
    values = {
        f"{line.metric}.p{percentile:g}": value
        for line in summary.latencies
        if line.scenario == "all" and line.metric in _METRICS
        for percentile in _PERCENTILES
        if (value := line.percentiles_s.get(percentile)) is not None
    }
    values["tokens_per_s"] = summary.output_tokens_per_s
    problem = f"at {target.fixed.rate:g}/s: {judged.why}" if judged.result is Result.FAIL else ""
    return values, problem


def _capacity(
    target: Target, slo: Slo, folder: Path, console: Console
) -> tuple[dict[str, float], str]:
    asked = target.capacity
    assert asked is not None
    setting = Setting(
        _load(target, slo), capacity_probe.judged_by(slo), folder, "rate", target.sidecar,
        target.ready_timeout, 60.0, console,
    )  # fmt: skip
    limits = capacity_run.limits_for(
        slo, low=asked.min, high=asked.max, resolution=asked.resolution, budget_s=asked.budget,
        shortest_s=asked.shortest, whole=False,
    )  # fmt: skip
    answer = capacity_run.search(setting, limits, None, force=False).answer
    assert answer is not None
    if answer.passes is None:
        return {}, f"capacity: {capacity_run.sentence(answer, whole=False)}"
    return {"capacity": answer.passes}, ""


def prune(config: Nightly, history: History, now: datetime, console: Console) -> list[str]:
    """Delete run folders that are older than `keep`; their numbers stay on record.

    Only those in the folder of this nightly.yaml: others may share the history.
    """
    oldest = now - timedelta(seconds=config.keep)
    gone = []
    for night in history.nights():
        if night.directory and night.at < oldest and config.out in Path(night.directory).parents:
            try:
                with suppress(FileNotFoundError):
                    shutil.rmtree(night.directory)
                gone.append(night.directory)
            except OSError as error:
                console.print(f"{night.directory}: cannot be deleted: {error.strerror}")
    history.forget_directories(gone)
    return gone


def in_words(night: Night) -> str:
    """One line of a night."""
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in sorted(night.values.items()))
    why = f": {night.why}" if night.why else ""
    return f"{night.target}: {night.status}{why} {numbers}".rstrip()
