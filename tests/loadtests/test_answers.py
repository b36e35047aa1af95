"""What the client makes of a real server's answers, good and bad, over real sockets."""

import json
import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest

from loadtests.outcome import Outcome
from slo.record import Failure
from tests.loadtests.fault_server import Seen, fault_server
from tests.loadtests.loops import one, outcomes, plan


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Seen]]:
    with fault_server() as running:
        yield running


@pytest.fixture(scope="module")
def url(server: tuple[str, Seen]) -> str:
    return server[0]


def said(outcome: Outcome) -> tuple[Failure | None, str, int, int | None]:
    record = outcome.record
    return record.error, outcome.answer, record.chunks, record.output_tokens


@pytest.mark.parametrize("script", ["ok", "crlf", "by_length", "by_close", "together"])
def test_a_stream_reads_the_same_in_every_framing(url: str, script: str) -> None:
    outcome = one(plan(url, f"/{script}"))
    assert said(outcome) == (None, "Hello", 2, 2)
    record = outcome.record
    assert record.finish_reason == "stop"
    assert record.status == 200
    assert (record.prompt_tokens, record.tokens_from, record.first_chunk_tokens) == (7, "usage", 1)
    assert len(record.itl_ms) == 1


def test_comments_names_and_ids_of_events_are_passed_over(url: str) -> None:
    assert said(one(plan(url, "/comments"))) == (None, "Hello", 2, 2)


def test_data_of_several_lines_is_one_event(url: str) -> None:
    assert said(one(plan(url, "/several_lines"))) == (None, "Hello", 1, 1)


def test_a_character_cut_at_a_packets_edge_is_read_whole(url: str) -> None:
    assert said(one(plan(url, "/byte_by_byte"))) == (None, "你好🙂", 2, 2)


def test_times_are_in_the_order_of_events_and_a_role_is_no_text(url: str) -> None:
    record = one(plan(url, "/ok")).record
    times = [
        record.due_s,
        record.sent_s,
        record.first_event_s,
        record.first_token_s,
        record.last_token_s,
        record.ended_s,
    ]
    assert None not in times
    assert all(earlier <= later for earlier, later in pairwise(times))  # type: ignore[operator]
    assert record.first_token_s - record.first_event_s > 0.005  # type: ignore[operator]
    gap_ms = (record.last_token_s - record.first_token_s) * 1e3  # type: ignore[operator]
    assert record.itl_ms[0] == pytest.approx(gap_ms, abs=0.01)


def test_several_tokens_a_chunk_are_counted_by_the_servers_usage(url: str) -> None:
    record = one(plan(url, "/packed")).record
    assert (record.chunks, record.output_tokens, record.first_chunk_tokens) == (2, 8, 4)


def test_without_usage_chunks_are_counted_and_said_so(url: str) -> None:
    record = one(plan(url, "/no_usage")).record
    assert (record.output_tokens, record.tokens_from, record.prompt_tokens) == (2, "chunks", None)


@pytest.mark.parametrize(("script", "mode"), [("field", "field"), ("tag", "tag")])
def test_reasoning_is_text_but_no_answer(url: str, script: str, mode: str) -> None:
    outcome = one(plan(url, f"/{script}", reasoning=mode))
    record = outcome.record
    assert record.error is None
    assert outcome.answer.strip() == "Yes"
    assert "hm" in outcome.reasoning
    assert record.first_token_s < record.first_answer_token_s  # type: ignore[operator]
    assert record.first_event_s < record.first_token_s  # type: ignore[operator]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("status_500", Failure.HTTP_STATUS, "boom"),
        ("status_429", Failure.HTTP_STATUS, "Retry-After: 7"),
        ("status_404", Failure.HTTP_STATUS, "Not Found"),
        ("html", Failure.NOT_A_STREAM, "text/html: <html>"),
        ("error_event", Failure.ERROR_EVENT, "out of memory"),
        ("broken_json", Failure.MALFORMED_EVENT, '{"choices": [{"del'),
        ("wrong_type", Failure.MALFORMED_EVENT, '"delta": "text"'),
        ("empty", Failure.EMPTY_ANSWER, "no text"),
        ("no_done", Failure.MISSING_DONE, "[DONE]"),
        ("cut", Failure.CUT_MID_STREAM, "inside"),
        ("cut_in_event", Failure.CUT_MID_STREAM, "inside"),
        ("silence", Failure.RESET, "without an answer"),
        ("reset", Failure.RESET, "ConnectionResetError"),
        ("reset_mid_stream", Failure.RESET, "ConnectionResetError"),
        ("not_http", Failure.NOT_HTTP, "220 mail"),
    ],
)
def test_each_fault_ends_as_one_record_of_its_kind(
    url: str, script: str, kind: Failure, words: str
) -> None:
    record = one(plan(url, f"/{script}")).record
    assert record.error is kind
    assert record.error_detail is not None
    assert words in record.error_detail
    assert record.ended_s is not None


def test_a_fault_keeps_the_times_of_the_text_before_it(url: str) -> None:
    record = one(plan(url, "/reset_mid_stream")).record
    assert (record.chunks, record.status) == (1, 200)
    assert record.first_token_s is not None


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("hang_early", Failure.TIMEOUT_BEFORE_HEADERS, "nothing came until the timeout"),
        ("hang", Failure.TIMEOUT_MID_STREAM, "nothing more came in the last 0."),
        ("endless", Failure.TIMEOUT_MID_STREAM, "still streaming at the timeout"),
    ],
)
def test_an_answer_without_an_end_ends_at_the_timeout(
    url: str, script: str, kind: Failure, words: str
) -> None:
    record = one(plan(url, f"/{script}", timeout_s=0.5)).record
    assert record.error is kind
    assert record.ended_s - record.due_s == pytest.approx(0.5, abs=0.2)  # type: ignore[operator]
    assert words in (record.error_detail or "")
    assert (record.chunks > 10) == (script == "endless")


def test_nobody_listening_is_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert one(plan(f"http://127.0.0.1:{port}")).record.error is Failure.REFUSED


def test_a_name_without_address_is_unresolved() -> None:
    assert one(plan("http://no-such-host.invalid:80")).record.error is Failure.UNRESOLVED


def test_a_connection_that_nobody_takes_times_out() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        record = one(plan(f"http://127.0.0.1:{full.getsockname()[1]}", timeout_s=0.5)).record
    assert record.error is Failure.CONNECT_TIMEOUT
    assert record.connected_s is None


def test_a_server_without_tls_behind_https_fails_by_tls(url: str) -> None:
    assert one(plan(url.replace("http:", "https:"))).record.error is Failure.TLS


def test_no_more_requests_are_open_than_the_bound_allows(url: str) -> None:
    ended, _ = outcomes(
        plan(url, "/hang", rate_per_s=20.0, duration_s=0.5, max_in_flight=3, timeout_s=0.8)
    )
    kinds = [outcome.record.error for outcome in ended]
    assert kinds.count(Failure.IN_FLIGHT_CAP) == 7
    assert kinds.count(Failure.TIMEOUT_MID_STREAM) == 3
    capped = [o.record for o in ended if o.record.error is Failure.IN_FLIGHT_CAP]
    assert all(record.sent_s is None for record in capped)


def test_what_the_generator_could_not_start_in_time_is_dropped(url: str) -> None:
    ended, _ = outcomes(plan(url, rate_per_s=5.0, timeout_s=3.0), late_s=60.0)
    assert [outcome.record.error for outcome in ended] == [Failure.DROPPED] * 5


def test_the_request_asks_for_a_stream_with_usage_and_no_compression(
    server: tuple[str, Seen],
) -> None:
    url, seen = server
    seen.requests.clear()
    changes = {"temperature": 0.6, "top_p": 0.9, "ignore_eos": True, "api_key": "secret"}
    one(plan(url, "/ok", **changes))
    head, _, body = seen.requests[0].partition(b"\r\n\r\n")
    assert b"Accept-Encoding: identity" in head
    assert b"Authorization: Bearer secret" in head
    asked = json.loads(body)
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True}
    assert (asked["temperature"], asked["top_p"], asked["ignore_eos"]) == (0.6, 0.9, True)
    assert (asked["model"], asked["max_tokens"]) == ("m", 16)
