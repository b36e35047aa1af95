"""Run the load: Locust in a process of its own, watched through the run directory it writes."""

import importlib.util
import math
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from slo import progress, rundir, server_metrics, sidecar, target_probe
from slo.children import child, kill
from slo.verdict import EXIT_INTERNAL, EXIT_USAGE

LOG = "locust.log"
REFRESH_S = 0.5
DRAIN_S = 30.0

EXIT_COMPLETE = 0
EXIT_INCOMPLETE = 4
EXIT_INTERRUPTED = 130


class DriveError(Exception):
    """A load that cannot be driven; one line for a person, and the exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Load:
    """What to send. None leaves the load engine's own default."""

    target: str
    rate_per_s: float
    duration_s: float
    model: str | None = None
    warmup_s: float | None = None
    arrival: str | None = None
    mix: dict[str, float] | None = None
    input_class: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    ignore_eos: bool = False
    reasoning: str | None = None
    seed: int | None = None
    workers: int = 1
    timeout_s: float | None = None
    max_in_flight: int | None = None
    max_requests: int | None = None
    max_total_tokens: int | None = None
    api_key_env: str | None = None
    label: str | None = None
    store_answers: bool = False


def arguments(load: Load, directory: Path) -> list[str]:
    """The load engine's options for a load."""
    mix = load.mix and ",".join(f"{name}={share!r}" for name, share in load.mix.items())
    values = {
        "--host": load.target,
        "--rate": f"{load.rate_per_s!r}/s",
        "--duration": f"{load.duration_s!r}s",
        "--warmup": None if load.warmup_s is None else f"{load.warmup_s!r}s",
        "--arrival": load.arrival,
        "--mix": mix,
        "--input-class": load.input_class,
        "--max-tokens": load.max_tokens,
        "--temperature": load.temperature,
        "--top-p": load.top_p,
        "--reasoning": load.reasoning,
        "--seed": load.seed,
        "--timeout": None if load.timeout_s is None else f"{load.timeout_s!r}s",
        "--max-in-flight": load.max_in_flight,
        "--max-requests": load.max_requests,
        "--max-total-tokens": load.max_total_tokens,
        "--api-key-env": load.api_key_env,
        "--model": load.model,
        "--label": load.label,
        "--out": directory,
        "--processes": load.workers if load.workers > 1 else None,
    }
    flags = {"--ignore-eos": load.ignore_eos, "--store-answers": load.store_answers}
    given = [f"{name}={value}" for name, value in values.items() if value is not None]
    return given + [name for name, wanted in flags.items() if wanted]


def default_directory(load: Load, now: datetime) -> Path:
    """Where a run lies that was given no --out: under the working directory, sorted by time."""
    what = re.sub(r"[^\w.-]+", "-", load.label or "-".join(load.mix or ())).strip("-") or "load"
    rate = f"{load.rate_per_s:.4g}"
    return Path("runs") / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{what}-{rate}qps"


def require_load_extra() -> None:
    """Say which extra is missing, before anything waits or starts.

    Raises:
        DriveError: Locust is not installed.
    """
    if importlib.util.find_spec("locust") is None:
        raise DriveError("the load engine is not installed; pip install 'tailgate[load]'")


def run(
    load: Load,
    out: Path | None,
    *,
    force: bool,
    ready_timeout_s: float,
    gpu: str,
    console: Console,
    until: Callable[[Path], Callable[[], str | None]] | None = None,
) -> tuple[Path, int]:
    """Wait for the target, send the load into a run directory, and say where that is.

    `until` gives for the directory a function that is asked often why the run is to end early.
    Returns the directory, and 0 complete, 4 incomplete or 130 interrupted.

    Raises:
        DriveError: the directory holds a run; the load engine is missing, or broke.
        TargetError: the target cannot be measured.
    """

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    require_load_extra()
    directory = out or default_directory(load, datetime.now(UTC))
    ours = (LOG, sidecar.LOG, rundir.SERVER, *(() if gpu == "off" else (rundir.GPU,)))
    if not force:
        made(directory)  # refuses at once, not after the wait
    try:
        key = target_probe.api_key(load.api_key_env)
        target_probe.wait_until_ready(load.target, timeout_s=ready_timeout_s, key=key, say=say)
        model = load.model or target_probe.first_model(load.target, key=key)
        made(directory, force=force)
        _forget(directory, ours)  # of a run that was killed before it began
        made(directory)
        why = until(directory) if until else _never
        code = _drive(replace(load, model=model), directory, key, gpu, console, say, why)
        if code == EXIT_INTERRUPTED and not (directory / rundir.RUN).exists():
            raise KeyboardInterrupt
        return directory, code
    except (DriveError, target_probe.TargetError, KeyboardInterrupt) as error:
        if getattr(error, "exit_code", EXIT_USAGE) == EXIT_USAGE:
            _forget(directory, ours)
        raise


def made(directory: Path, *, force: bool = False) -> Path:
    """Make a run directory.

    Raises:
        DriveError: it cannot be made, or holds a run already.
    """
    try:
        return rundir.create(directory, force=force)
    except rundir.RunDirError as error:
        raise DriveError(str(error)) from None


def _drive(
    load: Load,
    directory: Path,
    key: str | None,
    gpu: str,
    console: Console,
    say: Callable[[str], None],
    why_end: Callable[[], str | None],
) -> int:
    spec = importlib.util.find_spec("loadtests")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    locustfile = Path(spec.submodule_search_locations[0]) / "locustfile.py"
    argv = [sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "--only-summary"]
    if load.workers > 1:
        # On its own port, so that two runs on one host do not meet; on no other host's side.
        port = _free_port()
        argv += ["--master-bind-host=127.0.0.1", f"--master-bind-port={port}"]
        argv += ["--master-host=127.0.0.1", f"--master-port={port}"]
    path = directory / LOG
    with (
        path.open("wb") as log,
        sidecar.beside(gpu, directory, say),
        server_metrics.beside(load.target, directory, key, say),
        child([*argv, *arguments(load, directory)], stdout=log) as locust,
        progress.view(directory, console) as refresh,
    ):
        code, ended = _watch(locust, refresh, say, why_end)
    if ended is not None and code == EXIT_INCOMPLETE:
        code = _stopped(directory, ended)
    if code in (EXIT_COMPLETE, EXIT_INCOMPLETE, EXIT_INTERRUPTED):
        return code
    raise _last_words(path, code)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _never() -> str | None:
    return None


def _watch(
    locust: "subprocess.Popen[bytes]",
    refresh: Callable[[], None],
    say: Callable[[str], None],
    why_end: Callable[[], str | None],
) -> tuple[int, str | None]:
    """Draw until Locust ends; the first Ctrl-C lets it drain, a second one kills it.

    Returns its exit code, and why it was ended early where we found a reason to.
    """
    left_s = math.inf
    interrupted, why = False, None
    while left_s > 0:
        try:
            refresh()
            if why is None and not interrupted and (why := why_end()):
                left_s = DRAIN_S
                locust.send_signal(signal.SIGINT)
                say(f"stopping: {why}")
            code = locust.wait(REFRESH_S)
            return (EXIT_INTERRUPTED if interrupted else code), why
        except subprocess.TimeoutExpired:
            left_s -= REFRESH_S
        except KeyboardInterrupt:
            left_s = 0.0 if interrupted else DRAIN_S
            if not interrupted:
                interrupted = True
                locust.send_signal(signal.SIGINT)
                say("stopping: open requests get a short time to end (Ctrl-C again: at once)")
    kill(locust)
    return EXIT_INTERRUPTED, why


def _stopped(directory: Path, why: str) -> int:
    """Say in run.json why we ended the run, where nothing else did; returns its exit code."""
    run = rundir.read_run(directory)
    if run.stopped is None or run.stopped.why != "interrupted":
        return EXIT_INCOMPLETE
    rundir.write_run(directory, replace(run, finished=True, stopped=replace(run.stopped, why=why)))
    return EXIT_COMPLETE


def _last_words(log: Path, code: int) -> DriveError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("locust: ")]
    if code == EXIT_USAGE and told:
        return DriveError(told[-1].removeprefix("locust: ").removeprefix("error: argument "))
    last = lines[-1] if lines else "it said nothing"
    return DriveError(f"Locust ended with {code}; {log}: {last}", EXIT_INTERNAL)


def _forget(directory: Path, names: Sequence[str]) -> None:
    """Leave nothing of a run that never began."""
    if (directory / rundir.RUN).exists() or not directory.is_dir():
        return
    for name in names:
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):  # somebody else's files are in it
        directory.rmdir()
