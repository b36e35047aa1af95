"""Requests before the server is ready, since the first use of anything is slow."""

import argparse
import asyncio
from contextlib import suppress

from target.engines import Generate, Params, PromptError, Vocabulary

TEXT = "1 + 1 = 2"


async def warm(
    generate: Generate, vocabulary: Vocabulary, args: argparse.Namespace, most: int
) -> None:
    """Answer `--warmup` requests alone, then batches of 2, 4, ... up to `--warmup-batch`."""
    with suppress(PromptError):  # a model without a chat template still completes text
        vocabulary.encode_chat([{"role": "user", "content": TEXT}], True)
    prompt = vocabulary.encode(TEXT)
    length = args.warmup_tokens or len(prompt)
    prompt = (prompt * (length // len(prompt) + 1))[:length]

    async def answer() -> None:
        async for _ in generate(prompt, Params(args.warmup_answer, ignore_eos=True)):
            pass

    for _ in range(args.warmup):
        await answer()
    size = 2
    while size <= min(args.warmup_batch, most):  # each shape's first use is slow too
        for _ in range(2):
            await asyncio.gather(*(answer() for _ in range(size)))
        size *= 2
