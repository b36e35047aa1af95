"""Run the load: Locust in a process of its own, watched through the run directory it writes."""

import importlib.util
import math
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from slo import progress, run_lock, rundir, server_metrics, sidecar, target_probe
from slo.children import child, kill
from slo.load_command import Load as Load
from slo.load_command import arguments as arguments
from slo.load_command import default_directory as default_directory
from slo.verdict import EXIT_INTERNAL, EXIT_USAGE

LOG = "locust.log"
REFRESH_S = 0.5
DRAIN_S = 30.0
WORKER_PORT = 5557  # Locust's own default

EXIT_COMPLETE = 0
EXIT_INCOMPLETE = 4
EXIT_INTERRUPTED = 130

# Gives for a run directory a function that is asked often why the run is to end early.
Until = Callable[[Path], Callable[[], str | None]] | None
Ended = tuple[Path, int]  # the run directory, and 0 complete, 4 incomplete or 130 interrupted


class DriveError(Exception):
    """A load that cannot be driven; one line for a person, and the exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


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
    until: Until = None,
) -> Ended:
    """Wait for the target, send the load into a run directory, and say where that is.

    Raises:
        DriveError: the directory holds a run, or another process writes one there; the load
            engine is missing, or broke.
        TargetError: the target cannot be measured.
    """

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    require_load_extra()
    directory = out or default_directory(load, datetime.now(UTC))
    ours = (LOG, sidecar.LOG, rundir.SERVER, *(() if gpu == "off" else (rundir.GPU,)))
    with _claimed(directory):
        if not force:
            made(directory)  # refuses at once, not after the wait
        try:
            key = target_probe.api_key(load.api_key_env)
            target_probe.wait_until_ready(load.target, timeout_s=ready_timeout_s, key=key, say=say)
            model = load.model or target_probe.first_model(load.target, key=key)
            made(directory, force=force)
            _forget(directory, ours)  # of a run that was killed before it began
            why = until(directory) if until else _never
            load = replace(load, model=model)
            code = _drive(load, directory, key, gpu, console, say, why, ready_timeout_s)
            if code == EXIT_INTERRUPTED and not (directory / rundir.RUN).exists():
                raise KeyboardInterrupt
            return directory, code
        except (DriveError, target_probe.TargetError, KeyboardInterrupt) as error:
            if getattr(error, "exit_code", EXIT_USAGE) == EXIT_USAGE:
                _forget(directory, ours)
            raise


@contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Be the only one to write a run there; a directory that is left empty goes."""
    try:
        lock = run_lock.take(directory)
    except rundir.RunDirError as error:
        raise DriveError(str(error)) from None
    try:
        yield
    finally:
        run_lock.release(directory, lock)


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
    join_timeout_s: float,
) -> int:
    spec = importlib.util.find_spec("loadtests")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    locustfile = Path(spec.submodule_search_locations[0]) / "locustfile.py"
    argv = [sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "--only-summary"]
    if load.expect_workers is not None:
        argv += ["--master", f"--expect-workers={load.expect_workers}"]
        argv += [f"--expect-workers-max-wait={math.ceil(join_timeout_s)}"]
        port = load.worker_port or WORKER_PORT
        argv += [f"--master-bind-port={port}"]
        join = f"--worker --master-host {socket.gethostname()} --master-port {port}"
        say(f"waiting for {load.expect_workers} workers: locust -f - {join}")
    elif load.workers > 1:
        # On its own port, so that two runs on one host do not meet; on no other host's side.
        port = free_port()
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
    killed = code < 0 and (directory / rundir.RUN).exists()
    if killed and not rundir.read_run(directory).finished:
        say(f"the run is not complete: the load engine was killed by signal {-code}")
        return EXIT_INCOMPLETE
    if code == EXIT_INCOMPLETE:
        stopped = rundir.read_run(directory).stopped
        why_not = stopped.why if stopped else f"it has no end; {path} may say why"
        say(f"the run is not complete: {why_not}")
    if code in (EXIT_COMPLETE, EXIT_INCOMPLETE, EXIT_INTERRUPTED):
        return code
    raise _last_words(path, code)


def free_port() -> int:
    """A port of this host that nothing listens on."""
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
    if any("Gave up waiting for workers" in line for line in lines):
        return DriveError(f"not all workers joined in time; {log} says which did")
    last = lines[-1] if lines else "it said nothing"
    return DriveError(f"Locust ended with {code}; {log}: {last}", EXIT_INTERNAL)


def _forget(directory: Path, names: Sequence[str]) -> None:
    """Leave nothing of a run that never began."""
    if (directory / rundir.RUN).exists():
        return
    for name in names:
        (directory / name).unlink(missing_ok=True)
