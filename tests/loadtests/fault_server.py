"""A server that answers as its path says: well, oddly, or not at all."""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.loadtests.fault_scripts import GAP_S, restart_turns, script_of


class Seen:
    """What the server saw: connections, and each request's bytes."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
    seen.connections += 1
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while first := await reader.read(1):
            if first == b"\x16":  # a TLS hello, to a server without TLS
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            head = first + await reader.readuntil(b"\r\n\r\n")
            base, _, script = head.split(b" ")[1].decode().rpartition("/")
            sizes = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            body = await reader.readexactly(int(sizes[0].split(b":")[1]) if sizes else 0)
            if script == "info":
                restart_turns(base)
            elif script != "models":
                seen.requests.append(head + body)
            async for part in script_of(base, script):
                if part == b"RESET":
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                    return
                if not part:
                    return
                await asyncio.sleep(GAP_S if len(part) > 1 else 0)
                writer.write(part)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@contextmanager
def fault_server(certificate: Path | None = None) -> Iterator[tuple[str, Seen]]:
    """Its base URL, and what it sees; the path of a request names the script: URL/crlf."""
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    seen, place = Seen(), []

    async def main() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: _serve(reader, writer, seen), "127.0.0.1", 0, ssl=tls
        )
        place.append(server.sockets[0].getsockname()[1])
        ready.set()
        async with server:
            await stopped.wait()

    stopped = asyncio.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        waiting = asyncio.all_tasks(loop)
        for one in waiting:
            one.cancel()
        loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{place[0]}", seen
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


if __name__ == "__main__":
    with fault_server() as (url, _):
        print(url, flush=True)
        threading.Event().wait()
