"""From tokens to visible text, without a server: here a token is a byte, or a mark."""

import codecs
from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from target.engines import Vocabulary
from target.visible_text import Piece, Presentation, Reader

OPEN, CLOSE = 256, 257
MARKS = {OPEN: "<think>", CLOSE: "</think>"}


def byte_decoder() -> Callable[[int], str]:
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda token: MARKS.get(token) or utf8.decode(bytes([token]))


VOCABULARY = Vocabulary(
    lambda text: [], lambda messages, think: ([], think), byte_decoder, 256, 257
)


def pieces(
    tokens: Iterable[int], presentation: Presentation = "none", stops: tuple[str, ...] = ()
) -> list[Piece]:
    reader = Reader(VOCABULARY, presentation, thinking=presentation != "none", stops=stops)
    shown = list(reader.opening())
    for token in tokens:
        shown += reader.read(token)
        if reader.stopped:
            return shown
    return [*shown, *reader.rest()]


def test_bytes_wait_until_their_character_is_whole() -> None:
    assert pieces("é因a".encode()) == [Piece("answer", c) for c in "é因a"]
    assert pieces("因".encode()[:2]) == []


def test_marks_divide_reasoning_from_the_answer() -> None:
    tokens = [*b"r", CLOSE, *b"a"]
    reasoning, mark, answer = (
        Piece("reasoning", "r"),
        Piece("mark", "</think>"),
        Piece("answer", "a"),
    )
    assert pieces(tokens, "tag") == [Piece("mark", "<think>\n"), reasoning, mark, answer]
    assert pieces(tokens, "prompt-opened") == [reasoning, mark, answer]
    assert pieces(tokens, "field") == [reasoning, answer]
    shown = [Piece("answer", "r"), Piece("answer", "</think>"), answer]
    assert pieces(tokens, "none") == shown


def test_text_that_may_begin_a_stop_string_waits_only_as_long_as_it_may() -> None:
    assert pieces(b"xaab", stops=("aac",)) == [Piece("answer", "x"), Piece("answer", "aab")]


@given(
    text=st.text(alphabet="ab因", max_size=30),
    stops=st.lists(st.text(alphabet="ab因", min_size=1, max_size=4), max_size=3),
)
def test_the_answer_is_the_text_up_to_the_first_stop_string(text: str, stops: list[str]) -> None:
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    # The stop that is complete first ends the answer, at the earliest place where one begins.
    seen = text[: min(ends)] if ends else text
    starts = [at for stop in stops if (at := seen.find(stop)) >= 0]
    shown = "".join(piece.text for piece in pieces(text.encode(), stops=tuple(stops)))
    assert shown == (seen[: min(starts)] if starts else text)
