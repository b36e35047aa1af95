"""`serve`: bind, load, run, and on SIGTERM or SIGINT finish what is running before exiting."""

import argparse
import asyncio
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

import uvicorn

from target import engines, fault_injection
from target.admission import Admission
from target.alert import RollingAlert, Rule
from target.app import create_app
from target.engines import Engine, EngineError
from target.faults import FaultError, Faults, read_faults
from target.gate import Gate
from target.memory_trend import MemoryTrend
from target.metrics import Metrics
from target.option_scope import refuse_ignored
from target.service import Service
from target.startup import Startup
from target.visible_text import Presentation

BEGAN_S = time.monotonic()
BACKLOG = 2048
WATCH_S = 0.2
DIED = 3
REAL_FAULTS = ("error", "busy", "cut", "out-of-memory")  # what any engine can be told to do


class BindError(Exception):
    """The address cannot be listened on: one line for a person."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, not yet listening, so that clients are refused until the model is loaded."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, proto, _, address = found[0]
        # asyncio turns Nagle's algorithm off only where the socket names its protocol.
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BindError(f"cannot listen on {host}:{port}: {why}") from error
    return listener


def presentation(engine: Engine, asked: Presentation) -> Presentation:
    """How reasoning is shown: as asked, or `none` where the model has no mark for it."""
    return "none" if engine.vocabulary.think_close is None else asked


def service_of(engine: Engine, startup: Startup, args: argparse.Namespace) -> Service:
    """The engine behind its door, as the options say."""
    admission = Admission(engine.slots, args.max_queue, hand_over=engine.queues)
    memory = MemoryTrend(engine.memory)
    alert = None
    if args.alert_p95_ms is not None:
        alert = RollingAlert(Rule(args.alert_p95_ms / 1000, args.alert_window, args.alert_clear))
    return Service(
        engine,
        admission,
        Metrics(admission, engine, memory, alert),
        memory,
        presentation(engine, args.reasoning),
        args.temperature_policy or {},
        startup.report(),
    )


async def loaded(args: argparse.Namespace, startup: Startup) -> Engine:
    """Load the engine in a thread, so that /health can say how far it is."""
    done: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()

    def load() -> None:
        try:
            engine = fault_injection.injected(engines.load(args, startup), faults_of(args))
            loop.call_soon_threadsafe(done.set_result, engine)
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, error)

    loop = asyncio.get_running_loop()
    threading.Thread(target=load, name="load", daemon=True).start()
    engine = await done
    if engine.warm_up is not None:
        with startup.phase("warm-up"):
            try:
                await engine.warm_up()
            except Exception as error:
                why = str(error).splitlines()[0]
                raise EngineError(f"the engine answers no request: {why}") from error
    return engine


def faults_of(args: argparse.Namespace) -> Faults:
    """The faults of the command line; raises EngineError."""
    try:
        faults = read_faults(args.fault, args.seed)
    except FaultError as error:
        raise EngineError(str(error)) from error
    for fault in faults.faults:
        if args.engine != "sim" and fault.kind not in REAL_FAULTS:
            allowed = ", ".join(REAL_FAULTS)
            message = f"--fault {fault.kind}: allowed with --engine {args.engine}: {allowed}"
            raise EngineError(message)
    return faults


async def run(listener: socket.socket, args: argparse.Namespace) -> int:
    """Serve until a signal comes, then drain; the exit status."""
    startup = Startup(began_s=BEGAN_S)
    gate = Gate(startup, args.api_key)
    server = uvicorn.Server(
        uvicorn.Config(
            gate,
            log_level="warning",
            access_log=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:  # in place of uvicorn's: a load in a thread cannot be waited for
        asyncio.get_running_loop().add_signal_handler(number, os._exit, 128 + number)
    try:
        engine = await loaded(args, startup)
    except BaseException:
        server.should_exit = True
        await serving
        raise
    service = service_of(engine, startup, args)
    gate.app = create_app(service)
    drains: list[asyncio.Task[None]] = []

    async def drain() -> None:
        left = await service.admission.drain(args.drain_timeout)
        if left:
            sys.stderr.write(f"target: {left} requests cut off after {args.drain_timeout} s\n")
        server.should_exit = True

    def stop() -> None:
        if drains:  # a second signal: at once
            server.should_exit = True
        drains.append(asyncio.create_task(drain()))

    for number in signals:  # in place of uvicorn's, which would not drain
        asyncio.get_running_loop().add_signal_handler(number, stop)
    say_ready(args, listener, engine)
    why = await watched(serving, server, engine)
    for task in drains:
        task.cancel()
    engine.close()
    if why is not None:
        sys.stderr.write(f"target: the engine died: {why}\n")
    return DIED if why is not None else 0


def say_ready(args: argparse.Namespace, listener: socket.socket, engine: Engine) -> None:
    """The one line on stdout that a program can wait for."""
    host = f"[{args.host}]" if ":" in args.host else args.host
    sys.stdout.write(
        f"tailgate target ready on http://{host}:{listener.getsockname()[1]} "
        f"(engine {engine.name}, model {engine.model})\n"
    )
    sys.stdout.flush()


async def watched(
    serving: asyncio.Task[None], server: uvicorn.Server, engine: Engine
) -> str | None:
    """Wait for the server's end; an engine that cannot go on ends it: the reason is returned."""
    while not serving.done():
        if (why := engine.trouble()) is not None:
            server.should_exit = True
            await serving
            return why
        await asyncio.wait((serving,), timeout=WATCH_S)
    return None


def serve(args: argparse.Namespace) -> int:
    """The exit status: 0 after a drain, 2 where it could not start, 3 where the engine died."""
    try:
        refuse_ignored(args)
        with bind(args.host, args.port) as listener:
            if args.replicas > 1:
                from target.replicas import run_replicas

                return asyncio.run(run_replicas(listener, args))
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(run(listener, args))
    except (BindError, EngineError) as error:
        sys.stderr.write(f"target: {error}\n")
        return 2


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: a token then costs the server about half."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop]
    factory = importlib.import_module("uvloop").new_event_loop
    return factory
