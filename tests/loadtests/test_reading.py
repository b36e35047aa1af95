"""The pure readers: however the network cuts an answer, they read the same."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from loadtests.answer import cached_tokens, read_answer
from loadtests.exchange import Exchange
from loadtests.handover import Desk
from loadtests.http1 import AnswerReader, NotHttpError, parse_head
from loadtests.outcome import line, outcome
from loadtests.reasoning import MODES, ReasoningReader, mode_seen
from loadtests.schedule import arrivals
from loadtests.sse import EventReader
from slo.record import Record
from tests.loadtests.fault_scripts import DONE, END, HELLO, STREAM_HEAD, chunk, delta, event, last
from tests.loadtests.loops import LOAD

TEXTS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6)
CUTS = st.integers(1, 7)


def cut(data: bytes, most: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    pieces = []
    while data:
        size = rng.randint(1, most)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@given(datas=TEXTS, most=CUTS, seed=st.integers(0, 999), end=st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_they_are_cut(
    datas: list[str], most: int, seed: int, end: bytes
) -> None:
    wanted = [json.dumps(data, ensure_ascii=False).encode() for data in datas]
    whole = b"".join(b": ping" + end + end + event(data, end) for data in wanted)
    reader = EventReader()
    found = [data for piece in cut(whole, most, seed) for data in reader.feed(piece)]
    assert found == wanted
    assert not reader.pending


@given(bodies=TEXTS, most=CUTS, seed=st.integers(0, 999))
def test_a_chunked_body_is_the_same_however_it_is_cut(
    bodies: list[str], most: int, seed: int
) -> None:
    parts = [body.encode() for body in bodies]
    whole = STREAM_HEAD + b"".join(map(chunk, parts)) + END
    reader = AnswerReader()
    assert b"".join(reader.feed(piece) for piece in cut(whole, most, seed)) == b"".join(parts)
    assert reader.ended


def test_a_carriage_return_alone_ends_lines_too() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\r\rdata: b\r\r:\r") == [b"a", b"b"]


def test_trailers_and_interim_answers_are_passed_over() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM_HEAD)
    assert reader.head is not None
    assert reader.head.status == 200
    assert reader.feed(b"3;name=value\r\nabc\r\n0\r\nServer-Timing: x\r\n\r\n") == b"abc"
    assert reader.ended


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 hello\r\n\r\n"])
def test_what_is_no_http_is_said_so(data: bytes) -> None:
    with pytest.raises(NotHttpError, match=r"SSH|hello"):
        AnswerReader().feed(data)


@pytest.mark.parametrize("size", [b"xyz", b"-5", b"+5", b"0x5", b"1_0", b""])
def test_a_chunk_without_a_size_is_no_http(size: bytes) -> None:
    reader = AnswerReader()
    reader.feed(STREAM_HEAD)
    with pytest.raises(NotHttpError, match="no chunk size"):
        reader.feed(size + b"\r\nabc\r\n")


def test_a_connection_is_kept_as_the_head_says() -> None:
    assert parse_head(b"HTTP/1.1 200 OK").keeps_open
    assert not parse_head(b"HTTP/1.1 200 OK\r\nConnection: Close").keeps_open
    assert not parse_head(b"HTTP/1.0 200 OK").keeps_open


def split(mode: str, *contents: str) -> tuple[list[str], list[str]]:
    reader = ReasoningReader(mode)
    texts = [*(reader.feed(content, "") for content in contents), reader.rest()]
    return [t[0] for t in texts if t[0]], [t[1] for t in texts if t[1]]


@pytest.mark.parametrize(
    ("mode", "contents", "reasoning", "answer"),
    [
        ("tag", ["<think>", "\n", "so", "</think>", "Yes"], ["\n", "so"], ["Yes"]),
        ("tag", ["<thi", "nk>so</th", "ink>Yes"], ["so"], ["Yes"]),
        ("tag", ["<think>a</think>b"], ["a"], ["b"]),
        ("tag", ["1 <", " 2"], [], ["1 <", " 2"]),
        ("tag", ["<think>if a <", " b"], ["if a ", "< b"], []),
        ("tag", ["<think>cut </"], ["cut ", "</"], []),
        ("tag", ["Yes", "<think>"], [], ["Yes", "<think>"]),
        ("prompt-opened", ["so", "</think>", "Yes"], ["so"], ["Yes"]),
        ("prompt-opened", ["never ", "ends"], ["never ", "ends"], []),
        ("none", ["<think>", "Yes"], [], ["<think>", "Yes"]),
        ("none", ["", "\ufffd", "é"], [], ["é"]),
    ],
)
def test_reasoning_ends_where_its_marker_does(
    mode: str, contents: list[str], reasoning: list[str], answer: list[str]
) -> None:
    assert split(mode, *contents) == (reasoning, answer)


@pytest.mark.parametrize(
    ("contents", "field", "ended", "mode"),
    [
        ("Yes", True, True, "field"),
        ("\n<think>so", False, False, "tag"),
        ("so</think>Yes", False, True, "prompt-opened"),
        ("Yes", False, True, "none"),
        ("so and so", False, False, "unknown"),
    ],
)
def test_a_trial_answer_tells_the_mode_or_that_it_cannot(
    contents: str, field: bool, ended: bool, mode: str
) -> None:
    assert mode_seen(contents, field, ended) == mode


def exchange(*packets: bytes) -> Exchange:
    """An exchange whose n-th packet came after n ms."""
    filled = Exchange(sent_ns=0, ended_ns=10**9)
    for at, packet in enumerate(packets, 1):
        filled.take(at * 1_000_000, packet)
    return filled


def test_an_event_has_the_time_of_the_packet_that_ended_it() -> None:
    first = chunk(event(HELLO[1]))
    answer = read_answer(
        exchange(STREAM_HEAD, first[:9], first[9:], chunk(event(last())) + chunk(DONE) + END),
        "none",
    )
    assert answer.failure is None
    assert answer.chunk_stamps_ns == [3_000_000]
    assert answer.first_event_ns == 3_000_000


def test_usage_with_each_chunk_tells_the_first_chunks_tokens() -> None:
    events = [json.loads(delta(content=text)) for text in ("one two three", " four", " five")]
    for event_, tokens in zip(events, (3, 4, 5), strict=True):
        event_["usage"] = {"prompt_tokens": 9, "completion_tokens": tokens}
    datas = [json.dumps(one).encode() for one in events]
    packets = [chunk(event(data)) for data in datas]
    answer = read_answer(exchange(STREAM_HEAD, *packets, chunk(DONE) + END), "none")
    assert answer.first_chunk_usage == 3
    assert answer.usage == {"prompt_tokens": 9, "completion_tokens": 5}


KEYS = (
    "choices",
    "delta",
    "content",
    "finish_reason",
    "usage",
    "completion_tokens",
    "completion_tokens_details",
    "reasoning_content",
    "timings",
    "error",
    "message",
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["\ud800", "text"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries({"delta": JSON}, optional={"finish_reason": JSON})
        ),
        "usage": JSON,
        "timings": JSON,
        "error": JSON,
    },
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(events=st.lists(JSON | CHUNKS, max_size=4), mode=st.sampled_from(MODES))
def test_whatever_json_comes_there_is_a_record_that_can_be_read_back(
    events: list[object], mode: str
) -> None:
    packets = [chunk(event(json.dumps(one).encode())) for one in events]
    filled = exchange(STREAM_HEAD, *packets, chunk(DONE) + END)
    filled.arrival = next(arrivals(LOAD))
    ended = outcome(filled, 0, mode, 0)
    desk = Desk(keep_answers=True)
    desk.add(ended)
    assert TypeAdapter(Record).validate_json(line(ended.record)).seq == 0
    assert desk.batch() is not None


def test_json_nested_beyond_reason_is_malformed() -> None:
    packets = [chunk(event(b"[" * 100_000)), chunk(DONE) + END]
    assert read_answer(exchange(STREAM_HEAD, *packets), "none").failure == "malformed_event"


def test_tokens_that_the_prefix_cache_held_are_told_apart_from_none_said() -> None:
    said = {"prompt_tokens": 9, "completion_tokens": 1}
    for details, wanted in (({"cached_tokens": 8}, 8), ({"cached_tokens": 0}, 0), (None, None)):
        last_usage = {"choices": [], "usage": {**said, "prompt_tokens_details": details}}
        packets = [chunk(event(HELLO[1])), chunk(event(json.dumps(last_usage).encode()))]
        assert cached_tokens(read_answer(exchange(STREAM_HEAD, *packets), "none")) == wanted


def test_a_payload_that_would_break_out_of_the_list_is_malformed() -> None:
    packets = [chunk(event(b'{"choices": []},{"choices": []}')), chunk(DONE) + END]
    assert read_answer(exchange(STREAM_HEAD, *packets), "none").failure == "malformed_event"
