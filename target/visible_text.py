"""From engine steps to the text that a client may see, piece by piece.

Pure: characters wait until all their bytes are there, text that may begin a stop string waits
until that is known, and the marks of reasoning are shown or left out as the server presents them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from target.engines import Vocabulary

Presentation = Literal["tag", "prompt-opened", "field", "none"]
Kind = Literal["reasoning", "answer", "mark"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one kind; a mark is `<think>` or `</think>`, shown inside the content."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Reader:
    """Reads the tokens of one answer."""

    vocabulary: Vocabulary
    presentation: Presentation
    thinking: bool = False  # the prompt opened the reasoning
    stops: Sequence[str] = ()
    min_tokens: int = 0  # a stop string counts from here on
    tokens: int = 0
    reasoning_tokens: int = 0
    stopped: bool = False  # a stop string came
    _held: str = ""
    _marks: frozenset[int] = field(init=False)
    _decode: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        self._decode = self.vocabulary.decoder()
        marks = (self.vocabulary.think_open, self.vocabulary.think_close)
        off = self.presentation == "none"
        self._marks = frozenset() if off else frozenset(m for m in marks if m is not None)

    def opening(self) -> Iterator[Piece]:
        """What stands before the first token: the mark that the prompt holds, under `tag`."""
        if self.thinking and self.presentation == "tag":
            yield Piece("mark", "<think>\n")

    def read(self, token: int) -> Iterator[Piece]:
        """The text that this token completes."""
        self.tokens += 1
        text = self._decode(token)
        if token not in self._marks:
            self.reasoning_tokens += self.thinking
            yield from self._show(text)
            return
        mark = "<think>" if token == self.vocabulary.think_open else "</think>"
        yield from self._show(text.removesuffix(mark))
        yield from self.rest()
        self.thinking = token == self.vocabulary.think_open
        if self.presentation != "field":
            yield Piece("mark", mark)

    def rest(self) -> Iterator[Piece]:
        """Text that waited for a stop string which did not come."""
        text, self._held = self._held, ""
        if text and not self.stopped:
            yield Piece("reasoning" if self.thinking else "answer", text)

    def _show(self, text: str) -> Iterator[Piece]:
        text = self._held + text
        if self.stops and self.tokens > self.min_tokens:
            found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
            if found:
                self.stopped = True
                text = text[: min(found)]
        held = 0 if self.stopped else max((overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[len(text) - held :]
        if shown := text[: len(text) - held]:
            yield Piece("reasoning" if self.thinking else "answer", shown)


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` without being all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
