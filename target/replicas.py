"""Several engines behind one port: a front that gives each request to the one with the fewest.

Each replica is a server process of its own with the same options, on one device or one each. A
request that goes away here is closed there too.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from target import errors
from target.engines import EngineError
from target.streaming import until_gone

READY = "tailgate target ready on "
DIED = 3
WATCH_S = 0.2
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer"}


@dataclass(slots=True, eq=False)
class Replica:
    """A server process and how many requests it has in hand."""

    process: asyncio.subprocess.Process
    url: str
    outstanding: int = 0
    answered: int = 0


def options_of(argv: Sequence[str], device: str | None) -> list[str]:
    """The command line of one replica: ours, without what is the front's."""
    own: tuple[str, ...] = ("--replicas", "--replica-devices", "--host", "--port", "--api-key-env")
    own += ("--device",) if device else ()
    kept: list[str] = []
    skip = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if not skip and name not in own:
            kept.append(word)
        skip = not skip and name in own and not equals
    return [*kept, "--host", "127.0.0.1", "--port", "0", *(("--device", device) if device else ())]


async def start(argv: Sequence[str], device: str | None) -> Replica:
    """Start one replica and wait until it is ready; raises EngineError where it is not."""
    command = (sys.executable, "-m", "target", *options_of(argv, device))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    if not line.startswith(READY):
        raise EngineError("a replica did not start; its reason stands above")
    return Replica(process, line.removeprefix(READY).split(" ")[0])


class Front:
    """An ASGI application over replicas."""

    def __init__(self, replicas: list[Replica], api_key: str | None) -> None:
        self.replicas = replicas
        self.api_key = api_key
        self.draining = False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=1024)
        self.client = httpx.AsyncClient(timeout=None, limits=limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        path = request.url.path
        if path == "/metrics":
            response: Response = await self._metrics()
        elif path == "/health":
            response = await self._health()
        elif path == "/info":
            response = await self._info()
        elif self._refused(request):
            response = errors.answer(401, "a valid key is needed", code="invalid_api_key")
        elif self.draining:
            retry = {"Retry-After": "5"}
            response = errors.answer(503, "the server is shutting down", None, "server_busy", retry)
        else:
            body = await request.body()
            await until_gone(receive, self._pass_on(request, body, send))
            return
        await response(scope, receive, send)

    def _refused(self, request: Request) -> bool:
        guarded = request.url.path.startswith(("/v1/", "/generate"))
        given = request.headers.get("authorization", "")
        return self.api_key is not None and guarded and given != f"Bearer {self.api_key}"

    @asynccontextmanager
    async def _least(self) -> AsyncIterator[Replica]:
        """The replica with the fewest requests in hand, and the request counted there."""
        replica = min(self.replicas, key=lambda r: (r.outstanding, r.answered))
        replica.outstanding += 1
        replica.answered += 1
        try:
            yield replica
        finally:
            replica.outstanding -= 1

    async def _pass_on(self, request: Request, body: bytes, send: Send) -> None:
        async with self._least() as replica:
            path = request.url.path
            query = f"?{request.url.query}" if request.url.query else ""
            headers = [
                (name, value)
                for name, value in request.headers.items()
                if name not in HOP_BY_HOP and name not in ("host", "content-length")
            ]
            asked = self.client.build_request(
                request.method, f"{replica.url}{path}{query}", headers=headers, content=body
            )
            try:
                answer = await self.client.send(asked, stream=True)
            except httpx.HTTPError as error:
                message = f"a replica does not answer: {type(error).__name__}"
                refusal = errors.answer(502, message, code="replica_gone")
                await refusal(request.scope, request.receive, send)
                return
            try:
                kept = [
                    (name, value)
                    for name, value in answer.headers.raw
                    if name.decode().lower() not in HOP_BY_HOP
                ]
                start = {"type": "http.response.start", "status": answer.status_code}
                await send({**start, "headers": kept})
                async for data in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                await answer.aclose()

    async def _each(self, path: str) -> list[httpx.Response]:
        return await asyncio.gather(*(self.client.get(f"{r.url}{path}") for r in self.replicas))

    async def _metrics(self) -> Response:
        """All replicas' metrics, each with a label that says whose it is."""
        texts = [answer.text for answer in await self._each("/metrics")]
        return Response("".join(labelled(texts)), media_type="text/plain; version=1.0.0")

    async def _health(self) -> Response:
        """The worst of them."""
        if self.draining:
            return JSONResponse({"status": "draining"}, 503, {"Retry-After": "5"})
        answers = await self._each("/health")
        worst = max(answers, key=lambda a: (a.status_code, a.json()["status"] != "ready"))
        return JSONResponse(worst.json(), worst.status_code)

    async def _info(self) -> Response:
        """The first one's, since they are alike, and what the front adds."""
        infos = [answer.json() for answer in await self._each("/info")]
        pids = [info["pid"] for info in infos]
        replicas = {"count": len(infos), "pids": pids, "devices": [i["device"] for i in infos]}
        return JSONResponse({**infos[0], "pid": os.getpid(), "replicas": replicas})


def labelled(texts: Sequence[str]) -> list[str]:
    """Metrics of several servers as one text: families together, samples with `replica`."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for number, text in enumerate(texts):
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ")[2] if len(line.split(" ")) > 2 else family
                comments = families.setdefault(family, ([], []))[0]
                if line not in comments and number == 0:
                    comments.append(line)
                continue
            name, brace, rest = line.partition("{")
            label = f'replica="{number}"'
            if brace:
                sample = f"{name}{{{label},{rest}"
            else:
                name, _, rest = line.partition(" ")
                sample = f"{name}{{{label}}} {rest}"
            families[family][1].append(sample)
    return [f"{line}\n" for comments, samples in families.values() for line in comments + samples]


async def run_replicas(listener: socket.socket, args: argparse.Namespace) -> int:
    """Serve through replicas until a signal comes, then drain; the exit status."""
    devices = args.replica_devices.split(",") if args.replica_devices else [None]
    chosen = [devices[n % len(devices)] for n in range(args.replicas)]
    replicas: list[Replica] = []
    try:
        for started in asyncio.as_completed([start(sys.argv[1:], device) for device in chosen]):
            replicas.append(await started)
        return await serve_front(Front(replicas, args.api_key), listener, args)
    finally:
        for replica in replicas:
            if replica.process.returncode is None:
                replica.process.terminate()
        await asyncio.gather(*(replica.process.wait() for replica in replicas))


async def serve_front(front: Front, listener: socket.socket, args: argparse.Namespace) -> int:
    """The front's own life: it ends by a signal, or when a replica is gone."""
    config = uvicorn.Config(
        front, log_level="warning", access_log=False, lifespan="off", server_header=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)

    def stop() -> None:
        front.draining = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    where = f"http://{args.host}:{listener.getsockname()[1]}"
    sys.stdout.write(
        f"{READY}{where} (engine {args.engine}, {args.replicas} replicas, "
        f"model {args.model or 'default'})\n"
    )
    sys.stdout.flush()
    status, waited_s = 0, 0.0
    while not serving.done():
        busy = sum(replica.outstanding for replica in front.replicas)
        if front.draining and (not busy or waited_s > args.drain_timeout):
            server.should_exit = True
        if any(replica.process.returncode is not None for replica in front.replicas):
            status = DIED if not front.draining else status
            server.should_exit = True
        await asyncio.wait((serving,), timeout=WATCH_S)
        waited_s += WATCH_S if front.draining else 0.0
    await front.client.aclose()
    if status == DIED:
        sys.stderr.write("target: a replica died\n")
    return status
