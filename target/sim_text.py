"""What the simulated engine says: words without a model, or the answers of a file."""

import json
import random
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from target.engines import EngineError, FinishReason, Params, Vocabulary

TEXT = (
    "so first we add the two sums then check that each step holds for all n and write it as a "
    "list of terms where x is at most ten which gives twelve by the rule above 因此 答案 是 二"
)
WORDS = tuple(TEXT.split())
THINK_OPEN, THINK_CLOSE = len(WORDS), len(WORDS) + 1
MARKS = {THINK_OPEN: "<think>", THINK_CLOSE: "</think>"}
FIRST_PIECE = 200_000  # ids of pieces of given answers begin here
# About as long as the pieces of a real vocabulary; only their number and identity matter here.
PIECES = re.compile(r"[一-鿿]{1,2}|\d|\s?[A-Za-z]{1,6}|\s+|.", re.DOTALL)


def encode(text: str) -> list[int]:
    """Pieces of the text as ids: equal pieces give equal ids, and there is no way back."""
    return [1000 + zlib.crc32(piece.encode()) % 100_000 for piece in PIECES.findall(text)]


def encode_chat(messages: list[dict[str, str]], think: bool) -> tuple[list[int], bool]:
    """Prompt of a chat; the reasoning, where asked for, is opened by the prompt."""
    text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
    return [*encode(text), THINK_OPEN] if think else encode(text), think


@dataclass(frozen=True, slots=True)
class Answers:
    """Right and wrong answers by prompt, as token ids; empty: every answer is words."""

    known: Mapping[tuple[int, ...], tuple[Sequence[int], Sequence[int]]] = field(
        default_factory=dict
    )
    pieces: Sequence[str] = ()

    def vocabulary(self) -> Vocabulary:
        """Each word with a space before it, as most tokens of real vocabularies have."""

        def show(token: int) -> str:
            if token >= FIRST_PIECE:
                return self.pieces[token - FIRST_PIECE]
            return MARKS.get(token) or f" {WORDS[token]}"

        def decoder() -> Callable[[int], str]:
            return show

        return Vocabulary(encode, encode_chat, decoder, THINK_OPEN, THINK_CLOSE)

    def tokens(
        self, prompt: Sequence[int], params: Params, words: random.Random, wrong: bool
    ) -> Iterator[tuple[int, FinishReason | None]]:
        """The answer to a prompt: words, the end of the reasoning in its place, what is known."""
        key = tuple(token for token in prompt if token != THINK_OPEN)
        right, false = self.known.get(key, ((), ()))
        said = false if wrong else right
        if wrong and not said:
            words = random.Random(f"wrong {words.random()}")
        budget = params.think_tokens
        count = params.max_tokens
        if said and not params.ignore_eos:
            start = 0 if budget is None else budget + 1
            count = min(count, max(start + len(said), params.min_tokens))
        first = max(0 if budget is None else budget + 1, count - len(said))
        for n in range(count):
            token = THINK_CLOSE if n == budget else words.randrange(len(WORDS))
            if said and first <= n < first + len(said):
                token = said[n - first]
            finish: FinishReason = "length" if n + 1 == params.max_tokens else "stop"
            yield token, finish if n + 1 == count else None


def falsified(text: str) -> str:
    """The same text with every number another one; without a number, backwards."""
    other = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), text)
    return other if other != text else text[::-1] + "?"


def read_answers(path: str | None) -> Answers:
    """Read {"prompt": user's message, "answer": text} lines; raises EngineError."""
    if path is None:
        return Answers()
    numbers: dict[str, int] = {}

    def ids(text: str) -> tuple[int, ...]:
        return tuple(
            FIRST_PIECE + numbers.setdefault(piece, len(numbers)) for piece in PIECES.findall(text)
        )

    known = {}
    try:
        for number, row in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            try:
                told = json.loads(row)
                prompt, answer = str(told["prompt"]), f" {told['answer']}"
            except (ValueError, KeyError, TypeError) as error:
                message = f'--answers {path}:{number}: expected {{"prompt": ..., "answer": ...}}'
                raise EngineError(message) from error
            both = ids(answer), ids(falsified(answer))
            known[tuple(encode(f"<user>{prompt}"))] = known[tuple(encode(prompt))] = both
    except OSError as error:
        raise EngineError(f"--answers {path}: {error.strerror}") from error
    return Answers(known, tuple(numbers))
