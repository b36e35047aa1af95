"""The load engine in Locust's terms: locust -f loadtests/locustfile.py --headless --host URL ..."""

import os
import secrets
import signal
import sys
from dataclasses import dataclass
from typing import Any

import gevent
from locust import User, events, task
from locust.runners import MasterRunner, WorkerRunner

from loadtests.conductor import COMPLETE, INCOMPLETE, UNUSABLE, Conductor
from loadtests.crew import CrewMember
from loadtests.options import add_options
from loadtests.plan import OptionError, plan_of

STOP_WAIT_S = 20.0
FLUSH_S = 0.3  # a message needs this long to leave a process that ends


@dataclass(slots=True)
class Parts:
    """What this process has to do in a run: conduct it, take part in it, or both."""

    conductor: Conductor | None
    crew: CrewMember | None
    complaint: str | None = None  # options that do not go together
    interrupted: bool = False


class OpenLoopUser(User):  # type: ignore[misc]  # Locust has no types
    """Not a person but the schedule: one in each worker process."""

    @task  # type: ignore[untyped-decorator]
    def walk_the_schedule(self) -> None:
        """Do this worker's part, and stay until Locust ends.

        Apart from this user, which Locust would move to a worker that joins late.
        """
        gevent.spawn(self.environment.tailgate.crew.work)
        gevent.sleep(float("inf"))


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def on_parser(parser: Any, **_: Any) -> None:
    """Add our options to Locust's."""
    add_options(parser)


@events.init.add_listener  # type: ignore[untyped-decorator]
def on_init(environment: Any, runner: Any, **_: Any) -> None:
    """Check the options and take up this process's parts."""
    options = environment.parsed_options
    worker, master = isinstance(runner, WorkerRunner), isinstance(runner, MasterRunner)
    environment.process_exit_code = COMPLETE  # failed requests are results, not errors
    parts = environment.tailgate = Parts(None, None)
    if not worker:
        workers = options.expect_workers if master else 1
        options.num_users = options.spawn_rate = workers  # one user, the schedule, for each
        if options.seed is None:
            # A server may have cached the prompts of an earlier run: another seed, other prompts.
            options.seed = secrets.randbelow(2**31)
        try:
            plan = plan_of(options, environment.host, workers)
            parts.conductor = Conductor(environment, plan)
        except OptionError as error:
            parts.complaint = str(error)
        environment.events.quit.add_listener(lambda **_: say_directory(parts))
    if not master:
        parts.crew = CrewMember(environment)
    gevent.signal_handler(signal.SIGINT, on_interrupt, environment)
    # Added after the runner's own listener and called in reverse: before it tells workers to quit.
    environment.events.quitting.add_listener(on_quitting)


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def on_test_start(environment: Any, **_: Any) -> None:
    """Begin the run, where this process conducts it."""
    parts = environment.tailgate
    if parts.complaint is not None:
        # Said only now, when forked workers have joined: before, they would not hear of the end.
        sys.stderr.write(f"locust: {parts.complaint}\n")
        environment.process_exit_code = UNUSABLE
        gevent.spawn(environment.runner.quit)
    elif parts.conductor is not None:
        parts.conductor.begin()


def on_quitting(environment: Any, **_: Any) -> None:
    """Let a run that has not ended hand over what it has: SIGTERM comes this way."""
    conductor, crew = environment.tailgate.conductor, environment.tailgate.crew
    if conductor is not None:
        conductor.leaving = True
        if conductor.running:
            conductor.stop("terminated")
            conductor.ended.wait(STOP_WAIT_S)
    elif crew is not None and crew.running:
        crew.stop("terminated")
        crew.ended.wait(STOP_WAIT_S)
        gevent.sleep(FLUSH_S)


def on_interrupt(environment: Any) -> None:
    """Ctrl-C ends the run with what there is; a second one ends at once."""
    parts = environment.tailgate
    if parts.interrupted:
        os._exit(INCOMPLETE)
    parts.interrupted = True
    part = parts.conductor or parts.crew
    if part is not None and part.running:
        part.stop("interrupted")
    else:
        environment.runner.quit()


def say_directory(parts: Parts) -> None:
    """Say where the run lies: the last line."""
    if parts.conductor is not None and parts.conductor.writer is not None:
        sys.stdout.write(f"{parts.conductor.writer.directory}\n")
