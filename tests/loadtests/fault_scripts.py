"""What the fault server answers, one script for each way: well, oddly, or not at all."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
GAP_S = 0.01


def delta(**fields: object) -> bytes:
    """An event's data: one chunk of a chat completion with these fields in its delta."""
    event = {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}
    return json.dumps(event, ensure_ascii=False).encode()


def last(reason: str = "stop") -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).encode()


def usage(prompt: int, completion: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return json.dumps({"choices": [], "usage": counts}).encode()


def event(data: bytes, end: bytes = b"\n") -> bytes:
    return b"data: " + data + end + end


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


DONE = event(b"[DONE]")
END = b"0\r\n\r\n"
HELLO = [delta(role="assistant"), delta(content="Hel"), delta(content="lo"), last(), usage(7, 2)]

Script = AsyncIterator[bytes]


async def stream(*events: bytes, end: bytes = chunk(DONE) + END) -> Script:
    yield STREAM_HEAD
    for one in events:
        yield chunk(one)
    yield end


async def ok() -> Script:
    async for part in stream(*map(event, HELLO)):
        yield part


async def crlf() -> Script:
    async for part in stream(
        *(event(data, b"\r\n") for data in HELLO), end=chunk(event(b"[DONE]", b"\r\n")) + END
    ):
        yield part


async def comments() -> Script:
    named = b"event: message\nid: 3\n" + event(HELLO[2])
    pings = b": ping\n\n: ping\n\n"
    async for part in stream(pings, *map(event, HELLO[:2]), pings, named, event(last())):
        yield part


async def several_lines() -> Script:
    text = json.dumps(json.loads(delta(content="Hello")), indent=1).encode()
    lines = b"".join(b"data: " + line + b"\n" for line in text.split(b"\n")) + b"\n"
    async for part in stream(lines, event(last())):
        yield part


async def byte_by_byte() -> Script:
    whole = STREAM_HEAD + b"".join(chunk(event(delta(content=word))) for word in ("你好", "🙂"))
    for at in range(len(whole)):
        yield whole[at : at + 1]
    yield chunk(DONE) + END


async def together() -> Script:
    yield STREAM_HEAD + b"".join(chunk(event(data)) for data in HELLO) + chunk(DONE) + END


async def packed() -> Script:
    """Four tokens a chunk."""
    events = [delta(content="one two three four "), delta(content="five six seven eight"), last()]
    async for part in stream(*map(event, [*events, usage(5, 8)])):
        yield part


async def no_usage() -> Script:
    async for part in stream(*map(event, HELLO[:-1])):
        yield part


async def field() -> Script:
    events = [delta(role="assistant", content=""), delta(reasoning_content="hm"),
              delta(reasoning="so"), delta(content="Yes"), last()]  # fmt: skip
    async for part in stream(*map(event, events)):
        yield part


async def tag() -> Script:
    words = ["<think>", "\n", "hm", "</think>", "\n\n", "Yes", "\ufffd", ""]
    async for part in stream(*(event(delta(content=word)) for word in words), event(last())):
        yield part


async def by_length() -> Script:
    body = b"".join(map(event, HELLO)) + DONE
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % (
        len(body)
    )
    yield body


async def by_close() -> Script:
    yield b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    for data in HELLO:
        yield event(data)
    yield DONE
    yield b""


async def page(status: bytes, kind: bytes, body: bytes, *more: bytes) -> Script:
    head = [b"HTTP/1.1 " + status, b"Content-Type: " + kind, b"Content-Length: %d" % len(body)]
    yield b"\r\n".join([*head, *more, b"", body])


def status_500() -> Script:
    return page(b"500 Internal Server Error", b"application/json", b'{"error": "boom"}')


def status_429() -> Script:
    return page(b"429 Too Many Requests", b"text/plain", b"slow down", b"Retry-After: 7")


def status_404() -> Script:
    return page(b"404 Not Found", b"application/json", b'{"detail": "Not Found"}')


def html() -> Script:
    return page(b"200 OK", b"text/html", b"<html><body>Welcome</body></html>")


async def ok_then_close() -> Script:
    """Closes without having said so, as servers do with connections that they find idle."""
    async for part in ok():
        yield part
    yield b""


async def error_event() -> Script:
    error = json.dumps({"error": {"message": "out of memory", "code": 500}}).encode()
    async for part in stream(*map(event, [*HELLO[:2], error])):
        yield part


async def broken_json() -> Script:
    async for part in stream(*map(event, [*HELLO[:2], b'{"choices": [{"del', *HELLO[2:]])):
        yield part


async def wrong_type() -> Script:
    async for part in stream(*map(event, [b'{"choices": [{"delta": "text"}]}'])):
        yield part


async def empty() -> Script:
    async for part in stream(*map(event, [delta(role="assistant", content=""), last()])):
        yield part


async def no_done() -> Script:
    async for part in stream(*map(event, HELLO), end=END):
        yield part


async def cut() -> Script:
    yield STREAM_HEAD
    yield chunk(event(HELLO[1]))
    yield chunk(event(HELLO[2]))[:-9]
    yield b""


async def cut_in_event() -> Script:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    yield event(HELLO[1])
    yield b"data: {"
    yield b""


async def silence() -> Script:
    yield b""


async def not_http() -> Script:
    yield b"220 mail.example.org ESMTP\r\n"
    yield b""


async def hang_early() -> Script:
    await asyncio.sleep(60)
    yield b""


async def hang() -> Script:
    yield STREAM_HEAD
    yield chunk(event(HELLO[1]))
    await asyncio.sleep(60)


async def endless() -> Script:
    yield STREAM_HEAD
    while True:
        yield chunk(event(HELLO[1]))


async def reset() -> Script:
    yield b"RESET"


async def reset_mid_stream() -> Script:
    yield STREAM_HEAD
    yield chunk(event(HELLO[1]))
    yield b"RESET"


turns = itertools.count()  # of the requests under one base path
turns_of: dict[str, "itertools.count[int]"] = {}


def half() -> Script:
    """Well, then not, in turn; well first after GET /info, with which a run begins."""
    return status_500() if next(turns) % 2 else ok()


def half_hang() -> Script:
    return hang() if next(turns) % 2 else ok()


def tenths() -> Script:
    """Nine faults and a good answer, in turn."""
    return (ok, status_500, status_429, error_event, broken_json, empty, no_done, cut,
            reset_mid_stream, hang)[next(turns) % 10]()  # fmt: skip


def first_turn_fails() -> Script:
    return status_500() if next(turns) == 0 else ok()


SCRIPTS = {name: value for name, value in globals().items() if callable(value)}


def script_of(base: str, name: str) -> Script:
    """What is answered to a request under a base path, which has turns of its own."""
    global turns
    turns = turns_of.setdefault(base, itertools.count())
    return SCRIPTS.get(name, status_404)()


def restart_turns(base: str = "") -> None:
    """The next request under a base path is the first again for scripts that answer in turn."""
    turns_of[base] = itertools.count()
