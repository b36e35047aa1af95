"""Sessions of several turns, closed loops, prompts of one's own, and shared beginnings."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadtests.own_prompts import own_prompts
from loadtests.prompts import prompt
from loadtests.schedule import arrivals
from slo.record import Failure
from tests.loadtests.fault_scripts import restart_turns
from tests.loadtests.fault_server import Seen, fault_server
from tests.loadtests.loops import outcomes, plan


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Seen]]:
    with fault_server() as running:
        yield running


@pytest.fixture
def url(server: tuple[str, Seen]) -> str:
    server[1].requests.clear()
    restart_turns()
    return server[0]


def asked(seen: Seen) -> list[dict[str, Any]]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in seen.requests]


def test_a_turn_sends_all_that_was_said_and_is_due_after_the_one_before(
    server: tuple[str, Seen], url: str
) -> None:
    ended, _ = outcomes(plan(url, turns=3, think_s=0.1))
    records = [outcome.record for outcome in ended]
    assert [(record.turn, record.error) for record in records] == [(0, None), (1, None), (2, None)]
    for before, after in pairwise(records):
        assert before.ended_s is not None
        assert after.due_s == pytest.approx(before.ended_s + 0.1, abs=2e-6)
        assert after.after_seq == before.seq
        assert after.sent_s is not None
        assert after.sent_s >= after.due_s
    said = [body["messages"] for body in asked(server[1])]
    assert [len(messages) for messages in said] == [1, 3, 5]
    assert said[2][:3] == said[1]
    assert said[1][1] == {"role": "assistant", "content": "Hello"}
    assert [m["role"] for m in said[2]] == ["user", "assistant", "user", "assistant", "user"]
    assert len({m["content"] for m in said[2] if m["role"] == "user"}) == 3


def test_turns_after_a_failed_one_are_skipped_and_counted(url: str) -> None:
    ended, _ = outcomes(plan(url, "/first_turn_fails", rate_per_s=2.0, turns=3))
    kinds = {(o.record.session, o.record.turn): o.record.error for o in ended}
    first = {turn: kinds[0, turn] for turn in range(3)}
    assert first == {0: Failure.HTTP_STATUS, 1: Failure.SKIPPED, 2: Failure.SKIPPED}
    assert {kinds[1, turn] for turn in range(3)} == {None}
    skipped = [o.record for o in ended if o.record.error is Failure.SKIPPED]
    assert all(record.sent_s is None for record in skipped)
    assert "turn 0 of the session failed: http_status" in (skipped[0].error_detail or "")


def test_a_closed_loop_keeps_so_many_open_and_is_due_when_it_is_sent(url: str) -> None:
    ended, loop = outcomes(plan(url, arrival="concurrency:3", max_in_flight=3))
    records = sorted((o.record for o in ended), key=lambda record: record.seq)
    assert loop.not_started == 0
    assert len(records) > 12
    assert {record.error for record in records} == {None}
    assert [record.seq for record in records] == list(range(len(records)))
    for record in records:
        assert record.sent_s == record.due_s
        open_ones = [
            other
            for other in records
            if other.sent_s <= record.sent_s < other.ended_s  # type: ignore[operator]
        ]
        assert len(open_ones) <= 3
    assert max(record.due_s for record in records) < 1.0


def test_serial_requests_wait_for_one_another_and_a_refusal_is_no_storm(url: str) -> None:
    ended, _ = outcomes(plan(url, arrival="serial", max_in_flight=1))
    records = [outcome.record for outcome in ended]
    assert all(b.sent_s >= a.ended_s for a, b in pairwise(records))  # type: ignore[operator]
    ended, _ = outcomes(plan(url, "/status_500", arrival="serial", max_in_flight=1))
    assert 5 <= len(ended) <= 10  # in one second


JSONL = (
    '{"prompt": "One?", "max_tokens": 3}\n'
    '{"messages": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Two?"}]}\n'
)
SHAREGPT = json.dumps(
    [
        {"conversations": [{"from": "gpt", "value": "I am"}]},
        {
            "conversations": [
                {"from": "human", "value": "One?"},
                {"from": "gpt", "value": "1"},
                {"from": "human", "value": "Two?"},
            ]
        },
    ]
)


def test_own_prompts_are_each_sent_before_any_comes_again(
    server: tuple[str, Seen], url: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(JSONL)
    ended, _ = outcomes(plan(url, prompts=str(path), rate_per_s=4.0))
    assert {o.record.scenario for o in ended} == {"own"}
    bodies = asked(server[1])
    for pair in (bodies[:2], bodies[2:]):
        assert {(len(body["messages"]), body["max_tokens"]) for body in pair} == {(1, 3), (2, 16)}


def test_a_sharegpt_conversation_is_a_session_with_the_targets_own_answers(
    server: tuple[str, Seen], url: str, tmp_path: Path
) -> None:
    path = tmp_path / "share.json"
    path.write_text(SHAREGPT)
    ended, _ = outcomes(plan(url, prompts=str(path), turns=5))
    assert [outcome.record.turn for outcome in ended] == [0, 1]
    assert [message["content"] for message in asked(server[1])[1]["messages"]] == [
        "One?",
        "Hello",
        "Two?",
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "prompt,max_tokens\nHi,none\n", "a.csv:2: max_tokens 'none'"),
        ("a.csv", "question\nHi\n", "a.csv:2: no prompt"),
        ("a.jsonl", "{}\n", "a.jsonl:1: no prompt"),
        ("a.jsonl", "{\n", "a.jsonl:1: no JSON"),
        ("a.json", '["x"]', "entry 1: no JSON object"),
        ("a.json", "[]", "no prompt in it"),
    ],
)
def test_what_is_no_prompt_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        own_prompts(str(path))


def test_a_line_separator_inside_a_prompt_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\r\n{"prompt": "c"}\n', encoding="utf-8")
    assert [one.turns[0][0]["content"] for one in own_prompts(str(path))] == ["a\u2028b", "c"]


def test_a_csv_of_prompts_may_hold_commas_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('prompt,max_tokens\n"One, or\ntwo?",4\nThree?,\n')
    first, second = own_prompts(str(path))
    assert first.turns == (({"role": "user", "content": "One, or\ntwo?"},),)
    assert (first.max_tokens, second.max_tokens) == (4, None)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_share_of_each_prompt_is_the_same_and_the_rest_is_not(lang: str) -> None:
    texts = [prompt(f"math-{lang}-800-7-{index}-50").text for index in range(20)]
    shared = next(at for at in range(9999) if len({text[at] for text in texts}) > 1)
    assert 0.35 < shared / max(map(len, texts)) < 0.65
    assert len({text[shared : shared + 24] for text in texts}) == 20
    assert prompt(f"math-{lang}-800-8-0-50").text[:60] != texts[0][:60]


def test_shared_wholly_prompts_are_equal_and_shared_not_at_all_begin_apart() -> None:
    load = plan("http://x", shared_prefix=1.0, rate_per_s=30.0).load
    assert len({prompt(a.prompt_id).text for a in arrivals(load)}) == 2  # zh and en
    load = plan("http://x", rate_per_s=30.0).load
    assert len({prompt(a.prompt_id).text[:16] for a in arrivals(load)}) == 30
