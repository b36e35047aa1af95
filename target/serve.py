"""`serve`: bind, load, run, and on SIGTERM or SIGINT finish what is running before exiting."""

import argparse
import asyncio
import signal
import socket
import sys

import uvicorn

from target import engines
from target.admission import Admission
from target.app import create_app
from target.engines import Engine, EngineError
from target.metrics import Metrics
from target.service import Service
from target.visible_text import Presentation

BACKLOG = 2048


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


async def run(engine: Engine, listener: socket.socket, args: argparse.Namespace) -> None:
    """Serve until a signal comes, then drain."""
    admission = Admission(engine.slots, args.max_queue)
    service = Service(engine, admission, Metrics(admission), presentation(engine, args.reasoning))
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(service),
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
    drains: list[asyncio.Task[None]] = []

    async def drain() -> None:
        left = await admission.drain(args.drain_timeout)
        if left:
            sys.stderr.write(f"target: {left} requests cut off after {args.drain_timeout} s\n")
        server.should_exit = True

    def stop() -> None:
        if drains:  # a second signal: at once
            server.should_exit = True
        drains.append(asyncio.create_task(drain()))

    for number in (signal.SIGTERM, signal.SIGINT):  # in place of uvicorn's, which would not drain
        asyncio.get_running_loop().add_signal_handler(number, stop)
    host = f"[{args.host}]" if ":" in args.host else args.host
    sys.stdout.write(
        f"tailgate target ready on http://{host}:{listener.getsockname()[1]} "
        f"(engine {engine.name}, model {engine.model})\n"
    )
    sys.stdout.flush()
    await serving
    for task in drains:
        task.cancel()


def serve(args: argparse.Namespace) -> int:
    """The process's exit status: 0 after a drain, 2 where it could not start."""
    try:
        with bind(args.host, args.port) as listener:
            asyncio.run(run(engines.load(args), listener, args))
    except (BindError, EngineError) as error:
        sys.stderr.write(f"target: {error}\n")
        return 2
    return 0
