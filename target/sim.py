"""The simulated engine: tokens at chosen times, and no model.

The time to the first token and the gaps between tokens are fixed, or log-normal around the same
median, drawn from a seed. Slots are bounded by the server's admission, first come first served.
"""

import argparse
import asyncio
import itertools
import math
import random
import re
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from target.engines import Engine, Params, Step, Timings, Vocabulary

TEXT = (
    "so first we add the two sums then check that each step holds for all n and write it as a "
    "list of terms where x is at most ten which gives twelve by the rule above 因此 答案 是 二"
)
WORDS = tuple(TEXT.split())
THINK_OPEN, THINK_CLOSE = len(WORDS), len(WORDS) + 1
MARKS = {THINK_OPEN: "<think>", THINK_CLOSE: "</think>"}
CONTEXT = 32_768
SLOTS = 8
# About as long as the pieces of a real vocabulary; only their number and identity matter here.
PIECES = re.compile(r"[一-鿿]{1,2}|\d|\s?[A-Za-z]{1,6}|\s+|.", re.DOTALL)


def encode(text: str) -> list[int]:
    """Pieces of the text as ids: equal pieces give equal ids, and there is no way back."""
    return [1000 + zlib.crc32(piece.encode()) % 100_000 for piece in PIECES.findall(text)]


def encode_chat(messages: list[dict[str, str]], think: bool) -> tuple[list[int], bool]:
    """Prompt of a chat; the reasoning, where asked for, is opened by the prompt."""
    text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
    return [*encode(text), THINK_OPEN] if think else encode(text), think


def decoder() -> Callable[[int], str]:
    """Each word with a space before it, as most tokens of real vocabularies have."""
    return lambda token: MARKS.get(token) or f" {WORDS[token]}"


def waits(rng: random.Random, args: argparse.Namespace) -> Iterator[float]:
    """Seconds to the first token, then from each token to the next, without end."""
    for median_ms, sigma, count in (
        (args.ttft_ms, args.ttft_sigma, 1),
        (args.itl_ms, args.itl_sigma, None),
    ):
        for _ in itertools.repeat(None) if count is None else range(count):
            yield median_ms / 1000 * (math.exp(rng.gauss(0.0, sigma)) if sigma else 1.0)


def answer(rng: random.Random, params: Params) -> Iterator[int]:
    """Token ids of an answer: words, and the end of the reasoning where it has a budget."""
    for n in range(params.max_tokens):
        yield THINK_CLOSE if n == params.think_tokens else rng.randrange(len(WORDS))


def build(args: argparse.Namespace) -> Engine:
    """The engine as the options of `serve` describe it."""
    numbers = itertools.count()

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        number = next(numbers)
        # Times and words have streams of their own, so that a request's seed fixes only its text.
        gaps = waits(random.Random(f"{args.seed} times {number}"), args)
        words = random.Random(f"{args.seed} words {number}" if params.seed is None else params.seed)
        start = due = time.monotonic()
        first = None
        for n, token in enumerate(answer(words, params), start=1):
            due += next(gaps)  # a deadline, so that late tokens do not delay the later ones
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            first = first or now
            yield Step((token,), now, "length" if n == params.max_tokens else None)
        first = first or start
        yield Timings(prefill_s=first - start, decode_s=time.monotonic() - first)

    drawn = args.ttft_sigma or args.itl_sigma
    names = ("ttft_ms", "itl_ms", "ttft_sigma", "itl_sigma", "seed")
    return Engine(
        name="sim",
        model="sim" if args.model is None else args.model,
        mode="log-normal" if drawn else "fixed",
        dtype="none",
        device="none",
        context=CONTEXT,
        slots=args.max_running or SLOTS,
        generate=generate,
        vocabulary=Vocabulary(encode, encode_chat, decoder, THINK_OPEN, THINK_CLOSE),
        think_tokens=32 if args.think_tokens is None else args.think_tokens,
        flags={name: getattr(args, name) for name in names},
    )
