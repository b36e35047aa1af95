"""Server-sent events, and work that ends when its client goes away."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from target import errors

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def event(data: object) -> bytes:
    """One event."""
    return (
        b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


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


class EventStream(Response):
    """Sends `events` as they come. The status waits for the first, so that a refusal has its own.

    An error after that is an event with the error object, and then there is no `[DONE]`.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        media_type: str = "text/event-stream",
    ) -> None:
        super().__init__(None, media_type=media_type, headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, self._pump(send))

    async def _pump(self, send: Send) -> None:
        started = False
        async with aclosing(self.events) as events:
            try:
                async for data in events:
                    if not started:
                        started = True
                        start = {"type": "http.response.start", "status": self.status_code}
                        await send({**start, "headers": self.raw_headers})
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except Exception as error:
                if not started:
                    raise
                data = bytes(errors.as_answer(error).body)
                data = b"data: " + data + b"\n\n"
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
