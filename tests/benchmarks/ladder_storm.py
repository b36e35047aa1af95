"""Clients that leave in the middle of a stream."""

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit


async def leave(host: str, port: int, request: bytes, chunks: int) -> int:
    """Ask for a long stream, read some of it, and close the connection; bytes that were read."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request)
        await writer.drain()
        read = 0
        for _ in range(chunks):
            data = await asyncio.wait_for(reader.read(4096), 30)
            read += len(data)
            if not data:
                break
        writer.transport.abort()
        return read
    except (OSError, TimeoutError):
        return 0


def disconnect_storm(
    url: str, model: str, prompt: str, clients: int, chunks: int = 3
) -> dict[str, Any]:
    """Let so many clients leave at about the same time."""
    place = urlsplit(url)
    body = json.dumps({
        "model": model, "stream": True, "max_tokens": 1000, "ignore_eos": True,
        "messages": [{"role": "user", "content": prompt}],
    }).encode()  # fmt: skip
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def all_of_them() -> list[int]:
        assert place.hostname is not None
        assert place.port is not None
        jobs = [
            leave(place.hostname, place.port, head.encode() + body, chunks) for _ in range(clients)
        ]
        return list(await asyncio.gather(*jobs))

    start = time.monotonic()
    read = asyncio.run(all_of_them())
    return {
        "clients": clients,
        "had_text": sum(size > 0 for size in read),
        "took_s": round(time.monotonic() - start, 2),
    }
