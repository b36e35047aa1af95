"""Every arrival ends as one record of its kind, and the engine says what it took itself."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from loadtests.prompts import prompt
from loadtests.schedule import arrivals
from loadtests.spread import Spread
from loadtests.token_ceiling import TokenCeiling
from slo.record import Failure
from target.sim_text import encode_chat
from tests.loadtests.fault_scripts import restart_turns
from tests.loadtests.fault_server import Seen, fault_server
from tests.loadtests.loops import one, outcomes, plan


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Seen]]:
    with fault_server() as running:
        yield running


@pytest.fixture
def url(server: tuple[str, Seen]) -> str:
    return server[0]


def test_each_kind_of_fault_at_a_tenth_is_counted_exactly(url: str) -> None:
    restart_turns()
    ended, _ = outcomes(plan(url, "/tenths", rate_per_s=100.0, duration_s=2.0, timeout_s=1.0))
    kinds = Counter(outcome.record.error for outcome in ended)
    # A request may meet a reused connection that the server just closed; none here does so.
    assert kinds == {
        None: 20,
        Failure.HTTP_STATUS: 40,
        Failure.ERROR_EVENT: 20,
        Failure.MALFORMED_EVENT: 20,
        Failure.EMPTY_ANSWER: 20,
        Failure.MISSING_DONE: 20,
        Failure.CUT_MID_STREAM: 20,
        Failure.RESET: 20,
        Failure.TIMEOUT_MID_STREAM: 20,
    }
    assert Counter(o.record.status for o in ended) == {200: 160, 500: 20, 429: 20}
    for outcome in ended:
        record = outcome.record
        assert record.ended_s is not None
        assert record.ended_s - record.due_s < 1.5


def test_fresh_connections_are_each_used_once_and_say_what_connecting_took(
    server: tuple[str, Seen], url: str
) -> None:
    before = server[1].connections
    server[1].requests.clear()
    changes = {"rate_per_s": 20.0, "fresh_connections": True, "max_in_flight": 50}
    ended, loop = outcomes(plan(url, **changes))
    assert {outcome.record.error for outcome in ended} == {None}
    assert server[1].connections - before == 20
    assert all(b"Connection: close" in request for request in server[1].requests)
    for outcome in ended:
        record = outcome.record
        assert record.sent_s is not None
        assert record.connected_s is not None
        assert record.first_token_s is not None
        assert record.due_s <= record.sent_s <= record.connected_s < record.first_token_s
    told = loop.client()
    assert sum(count for _, count in told["connects"]) == 20


def test_the_engine_says_its_clock_its_processor_and_its_lag(url: str) -> None:
    _, loop = outcomes(plan(url, rate_per_s=20.0))
    told = loop.client()
    assert told["receive_clock"] == "kernel"
    assert 0 < told["cpu_share"] < 1.5
    assert 20 < told["rss_mib"] < 2000
    assert sum(count for _, count in told["loop_lag"]) > 20
    _, loop = outcomes(plan(url, receive_clock="process"))
    assert loop.client()["receive_clock"] == "process"


def test_a_spread_of_any_number_of_durations_stays_small_and_exact_to_three_digits() -> None:
    spread, twin = Spread(), Spread()
    for micros in range(200_000):
        (spread if micros % 2 else twin).add(micros)
    spread.merge(twin.pairs())
    found = spread.percentiles()
    assert found is not None
    assert len(spread.pairs()) < 4000
    for value, exact in ((found.p50_ms, 100), (found.p95_ms, 190), (found.p99_ms, 198)):
        assert value == pytest.approx(exact, rel=0.006)
    assert Spread().percentiles() is None


@pytest.mark.parametrize("size", ["128", "512", "896"])
def test_a_ceiling_on_tokens_leaves_room_for_another_tokenizer(size: str) -> None:
    load = plan("http://x", input_class=size, mix={"code": 1.0}, rate_per_s=60.0).load
    for arrival in arrivals(load):
        text = prompt(arrival.prompt_id).text
        spent = len(encode_chat([{"role": "user", "content": text}], True)[0]) + load.max_tokens
        assert not TokenCeiling(spent).reserve(arrival, len(text), 0)
        assert TokenCeiling(round(1.6 * spent)).reserve(arrival, len(text), 0)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer to which each character is a token."""
    vocabulary = {chr(code): code for code in range(128)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def test_without_usage_a_named_tokenizer_counts_the_text(url: str, letters: str) -> None:
    record = one(plan(url, "/no_usage", tokenizer=letters)).record
    assert (record.output_tokens, record.text_tokens, record.tokens_from) == (5, 5, "tokenizer")
    assert record.chunks == 2


def test_beside_usage_a_named_tokenizer_is_a_second_opinion(url: str, letters: str) -> None:
    by_folder = str(Path(letters).parent)
    record = one(plan(url, "/ok", tokenizer=by_folder)).record
    assert (record.output_tokens, record.text_tokens, record.tokens_from) == (2, 5, "usage")
