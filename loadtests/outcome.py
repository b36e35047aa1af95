"""From an exchange to its record, and from a record to its line in requests.jsonl."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from loadtests.answer import Answer, cached_tokens, first_chunk_tokens, read_answer, tokens
from loadtests.exchange import Exchange
from loadtests.text_tokens import Counter
from slo.record import Arrival, Failure, Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """One ended arrival: its record, and the texts where they are kept."""

    record: Record
    reasoning: str
    answer: str
    received_bytes: int


def outcome(
    exchange: Exchange, worker: int, mode: str, t0_ns: int, count: Counter | None = None
) -> Outcome:
    """Read an exchange that has ended; `t0_ns` is the run's start on this machine's clock."""
    read = read_answer(exchange, mode)
    assert exchange.arrival is not None
    reasoning, answer = "".join(read.reasoning_texts), "".join(read.answer_texts)
    record = _record(exchange.arrival, worker, exchange, read, t0_ns)
    if count is not None and (reasoning or answer):
        record = _counted(record, count(reasoning + answer))
    return Outcome(record, reasoning, answer, exchange.received_bytes)


def _counted(record: Record, text_tokens: int) -> Record:
    """With the tokens of its text; where the server said none, these are its output."""
    if record.tokens_from == "usage":
        return replace(record, text_tokens=text_tokens)
    share = text_tokens / max(1, record.chunks)
    first = record.first_chunk_tokens
    return replace(
        record,
        text_tokens=text_tokens,
        output_tokens=text_tokens,
        tokens_from="tokenizer",
        first_chunk_tokens=first if share < 1.5 else max(1, round(share)),
    )


def unsent(arrival: Arrival, worker: int, ended_s: float, error: Failure, detail: str) -> Outcome:
    """The outcome of an arrival that was never sent."""
    record = Record(**_intended(arrival, worker), ended_s=ended_s, error=error, error_detail=detail)
    return Outcome(record, "", "", 0)


def line(record: Record) -> bytes:
    """The record's line of requests.jsonl, with its line end."""
    values = {name: getattr(record, name) for name in Record.__slots__}
    return json_line(values)


def json_line(values: dict[str, Any]) -> bytes:
    """One line of JSON. Half a surrogate pair, which UTF-8 cannot hold, becomes "?"."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _intended(arrival: Arrival, worker: int) -> dict[str, Any]:
    return {
        "seq": arrival.seq,
        "due_s": arrival.due_s,
        "phase": arrival.phase,
        "scenario": arrival.scenario,
        "lang": arrival.lang,
        "input_class": arrival.input_class,
        "prompt_id": arrival.prompt_id,
        "max_tokens": arrival.max_tokens,
        "session": arrival.session,
        "turn": arrival.turn,
        "after_seq": arrival.after_seq,
        "think_s": arrival.think_s,
        "worker": worker,
    }


def _record(arrival: Arrival, worker: int, exchange: Exchange, read: Answer, t0_ns: int) -> Record:
    prompt_tokens, output_tokens, reasoning_tokens, tokens_from = tokens(read)
    stamps = read.chunk_stamps_ns

    def at_s(stamp_ns: int | None) -> float | None:
        return None if stamp_ns is None else (stamp_ns - t0_ns) // 1000 / 1e6

    return Record(
        **_intended(arrival, worker),
        sent_s=at_s(exchange.sent_ns),
        connected_s=at_s(exchange.connected_ns),
        first_event_s=at_s(read.first_event_ns),
        first_token_s=at_s(stamps[0] if stamps else None),
        first_answer_token_s=at_s(read.first_answer_ns),
        last_token_s=at_s(stamps[-1] if stamps else None),
        ended_s=at_s(exchange.ended_ns),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens,
        tokens_from=tokens_from,
        chunks=len(stamps),
        first_chunk_tokens=first_chunk_tokens(read, output_tokens),
        itl_ms=tuple([(later - earlier) // 1000 / 1000 for earlier, later in pairwise(stamps)]),
        finish_reason=read.finish_reason,
        status=read.status,
        error=read.failure,
        error_detail=read.detail,
        timings=read.timings,
        cached_tokens=cached_tokens(read),
    )
