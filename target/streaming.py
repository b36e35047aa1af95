"""Streams of bytes that are sent as they come, and work that ends when its client goes away."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from target import errors
from target.engines import CutError

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def compact(data: object) -> bytes:
    """JSON text without spaces, in UTF-8."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def event(data: bytes) -> bytes:
    """JSON text as one server-sent event."""
    return b"data: " + data + b"\n\n"


def line(data: bytes) -> bytes:
    """JSON text as one line of newline-delimited JSON."""
    return data + b"\n"


async def until_gone(receive: Receive, work: Coroutine[None, None, T]) -> T | None:
    """The result of `work`, or None when the client went away, and then `work` was cancelled.

    The body of the request must have been read already.
    """

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        return None if task.cancelled() else task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


class Stream(Response):
    """Sends `parts` as they come. The status waits for the first, so that a refusal has its own.

    An error after that is one more part, with the error object, and then there is no `[DONE]`.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        media_type: str = "text/event-stream",
        frame: Callable[[bytes], bytes] = event,
    ) -> None:
        super().__init__(None, media_type=media_type, headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self.parts = parts
        self.frame = frame

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, self._pump(send))

    async def _pump(self, send: Send) -> None:
        started = False
        async with aclosing(self.parts) as parts:
            try:
                async for data in parts:
                    if not started:
                        started = True
                        start = {"type": "http.response.start", "status": self.status_code}
                        await send({**start, "headers": self.raw_headers})
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except CutError:  # the server ends the connection, since the answer has no end
                return
            except Exception as error:
                if not started:
                    raise
                logging.getLogger(__name__).error("a stream broke off", exc_info=error)
                data = self.frame(bytes(errors.as_answer(error).body))
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
