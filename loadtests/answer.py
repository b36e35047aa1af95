"""What an exchange says: text, tokens and their times, or the kind of its failure."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from loadtests.exchange import Exchange
from loadtests.http1 import NotHttpError
from loadtests.reasoning import ReasoningReader
from loadtests.sse import EventReader
from slo.record import Failure, TokensFrom

DONE = b"[DONE]"


@dataclass(slots=True)
class Answer:
    """One answer, read. Times are CLOCK_MONOTONIC, ns."""

    failure: Failure | None = None
    detail: str | None = None
    status: int | None = None
    first_event_ns: int | None = None
    first_answer_ns: int | None = None
    chunk_stamps_ns: list[int] = field(default_factory=list)  # of events with visible text
    chunk_lengths: list[int] = field(default_factory=list)  # their characters
    reasoning_texts: list[str] = field(default_factory=list)
    answer_texts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    first_chunk_usage: int | None = (
        None  # tokens so far, where the server says them with each chunk
    )
    timings: dict[str, float] | None = None
    done: bool = False


def read_answer(exchange: Exchange, mode: str) -> Answer:
    """Read an exchange that has ended, under a way of marking reasoning."""
    answer = Answer()
    http = exchange.http
    try:
        exchange.unframe()
    except NotHttpError as error:
        return _failed(answer, Failure.NOT_HTTP, str(error))
    if http.head is not None:
        answer.status = http.head.status
        if answer.status != 200:
            return _failed(answer, Failure.HTTP_STATUS, _status_words(exchange))
        kind = http.head.headers.get("content-type", "no Content-Type")
        if not kind.startswith("text/event-stream"):
            page = b"".join(exchange.bodies)
            return _failed(answer, Failure.NOT_A_STREAM, f"{kind}: {_excerpt(page)}")
    sse = EventReader()
    stamps: list[int] = []
    payloads: list[bytes] = []
    # A packet that came early, after one that was lost, can be read no sooner than that one.
    for stamp, body in zip(accumulate(exchange.stamps_ns, max), exchange.bodies, strict=True):
        for data in sse.feed(body):
            stamps.append(stamp)
            payloads.append(data)
    _read_events(answer, stamps, payloads, ReasoningReader(mode))
    if answer.failure is None and not answer.done:
        answer.failure, answer.detail = _why_it_ended(exchange, sse)
    elif answer.failure is None and not answer.chunk_stamps_ns:
        answer.failure, answer.detail = Failure.EMPTY_ANSWER, "[DONE] and no text before it"
    return answer


def tokens(answer: Answer) -> tuple[int | None, int | None, int | None, TokensFrom | None]:
    """Prompt, output and reasoning tokens, and who counted: the server, else we the chunks."""
    usage = answer.usage or {}
    output = _count(usage, "completion_tokens")
    if output is not None:
        reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
        return _count(usage, "prompt_tokens"), output, reasoning, "usage"
    chunks = len(answer.chunk_stamps_ns)
    return None, chunks or None, None, "chunks" if chunks else None


def cached_tokens(answer: Answer) -> int | None:
    """Tokens of the prompt that the server found in its prefix cache, where it says so."""
    return _count((answer.usage or {}).get("prompt_tokens_details"), "cached_tokens")


def first_chunk_tokens(answer: Answer, output_tokens: int | None) -> int | None:
    """Tokens of the first chunk with text: 1 unless the server packs several into a chunk.

    Where it does and does not say how many, they are estimated by the chunk's share of the text.
    """
    chunks = answer.chunk_lengths
    if not chunks:
        return None
    if answer.first_chunk_usage is not None:
        return answer.first_chunk_usage
    # Markers and the end of text are tokens too: a few more tokens than chunks is no packing.
    if output_tokens is None or output_tokens < 1.5 * len(chunks):
        return 1
    return max(1, round(output_tokens * chunks[0] / sum(chunks)))


def _read_events(
    answer: Answer, stamps: list[int], payloads: list[bytes], reader: ReasoningReader
) -> None:
    last_delta: int | None = None
    for stamp, event in zip(stamps, _parsed(payloads), strict=True):
        if answer.first_event_ns is None:
            answer.first_event_ns = stamp
        if event is DONE:
            answer.done = True
            break
        try:
            choices = event["choices"]
            if choices:
                last_delta = stamp
                _read_choice(answer, stamp, choices[0], reader)
            _read_extras(answer, event)
        except (AttributeError, KeyError, TypeError):
            # No JSON, another object, or a field of another type than the API's.
            if not _is_usage(event):
                _refuse(answer, event)
                return
            _read_extras(answer, event)
    if last_delta is not None:
        _add_text(answer, last_delta, *reader.rest())


def _count(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if type(value) is int and value >= 0 else None


def _parsed(payloads: list[bytes]) -> Iterator[Any]:
    """The JSON of each event, DONE for the end mark, the bytes where they are no JSON."""
    whole = payloads[:-1] if payloads and payloads[-1] == DONE else payloads
    try:
        # One call for all of a stream is several times faster than one for each event.
        events = json.loads(b"[" + b",".join(whole) + b"]")
    except (ValueError, RecursionError):
        events = []
    if len(events) != len(whole):
        events = [_one(data) for data in whole]
    yield from events
    if len(whole) != len(payloads):
        yield DONE


def _one(data: bytes) -> Any:
    if data == DONE:
        return DONE
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


def _is_usage(event: Any) -> bool:
    return (
        isinstance(event, dict) and "choices" not in event and isinstance(event.get("usage"), dict)
    )


def _refuse(answer: Answer, event: Any) -> None:
    if isinstance(event, dict) and not {"error", "message", "detail"}.isdisjoint(event):
        error = event.get("error", event)
        words = error.get("message", error) if isinstance(error, dict) else error
        answer.failure, answer.detail = Failure.ERROR_EVENT, _excerpt(str(words))
        return
    shown = event if isinstance(event, bytes) else json.dumps(event, ensure_ascii=False)
    answer.failure, answer.detail = Failure.MALFORMED_EVENT, _excerpt(shown)


def _read_choice(
    answer: Answer, stamp: int, choice: dict[str, Any], reader: ReasoningReader
) -> None:
    delta = choice.get("delta") or {}
    content = delta.get("content") or ""
    thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
    if content or thought:
        if not (isinstance(content, str) and isinstance(thought, str)):
            raise TypeError("text that is no string")
        _add_text(answer, stamp, *reader.feed(content, thought))
    if choice.get("finish_reason"):
        answer.finish_reason = str(choice["finish_reason"])


def _add_text(answer: Answer, stamp: int, reasoning: str, said: str) -> None:
    if reasoning:
        answer.reasoning_texts.append(reasoning)
    if said:
        answer.answer_texts.append(said)
        if answer.first_answer_ns is None:
            answer.first_answer_ns = stamp
    if reasoning or said:
        answer.chunk_stamps_ns.append(stamp)
        answer.chunk_lengths.append(len(reasoning) + len(said))


def _read_extras(answer: Answer, event: dict[str, Any]) -> None:
    usage = event.get("usage")
    if isinstance(usage, dict):
        answer.usage = usage
        # Said beside the first text itself, not at the end of a one-chunk answer.
        beside = event.get("choices") and not answer.finish_reason
        if beside and answer.first_chunk_usage is None and len(answer.chunk_stamps_ns) == 1:
            answer.first_chunk_usage = _count(usage, "completion_tokens")
    timings = event.get("timings")
    if isinstance(timings, dict):
        answer.timings = {
            name: float(value)
            for name, value in timings.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }


def _why_it_ended(exchange: Exchange, sse: EventReader) -> tuple[Failure, str | None]:
    http, broke = exchange.http, exchange.broke
    if broke is Failure.TIMEOUT_BEFORE_HEADERS and http.head is not None:
        return Failure.TIMEOUT_MID_STREAM, _at_the_timeout(exchange)
    if broke is not None:
        return broke, exchange.detail
    if http.head is None and not exchange.received_bytes:
        return Failure.RESET, "the peer closed the connection without an answer"
    if not http.ended or sse.pending:
        return Failure.CUT_MID_STREAM, "the body ended inside a chunk or an event"
    return Failure.MISSING_DONE, "the body ended well, but without [DONE]"


def _at_the_timeout(exchange: Exchange) -> str:
    """Whether it was still sending: silent for no longer than it had been between packets."""
    stamps = exchange.stamps_ns
    silent_ns = (exchange.ended_ns or stamps[-1]) - stamps[-1]
    longest_ns = max((later - earlier for earlier, later in pairwise(stamps)), default=0)
    if silent_ns <= 2 * longest_ns:
        return "still streaming at the timeout"
    return f"nothing more came in the last {silent_ns / 1e9:.3g} s before the timeout"


def _status_words(exchange: Exchange) -> str:
    head = exchange.http.head
    assert head is not None
    wait = head.headers.get("retry-after")
    page = _excerpt(b"".join(exchange.bodies))
    return f"HTTP {head.status}{f', Retry-After: {wait}' if wait else ''}: {page}"


def _failed(answer: Answer, failure: Failure, detail: str) -> Answer:
    answer.failure, answer.detail = failure, detail
    return answer


def _excerpt(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return " ".join(text.split())[:200]
