"""Engines inside the test process: options as on the command line, answers without HTTP."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from target import engines
from target.__main__ import arguments
from target.engines import Engine, Params, Step, Timings
from target.startup import Startup


def built(*options: str) -> Engine:
    """The engine of `serve OPTIONS`, loaded and warm."""
    return engines.load(arguments().parse_args(["serve", *options]), Startup())


async def answer(
    engine: Engine, prompt: Sequence[int], params: Params, most: int | None = None
) -> tuple[list[int], Timings | None]:
    """All tokens of an answer, or the first `most` of them, and then the client is gone."""
    tokens: list[int] = []
    async with aclosing(engine.generate(prompt, params)) as parts:
        async for part in parts:
            if isinstance(part, Timings):
                return tokens, part
            assert isinstance(part, Step)
            tokens.extend(part.tokens)
            if most is not None and len(tokens) >= most:
                break
    return tokens, None


def answers(engine: Engine, asked: Sequence[tuple[Sequence[int], Params]]) -> list[list[int]]:
    """Tokens of requests that are sent in the same moment."""

    async def together() -> list[list[int]]:
        return [t for t, _ in await asyncio.gather(*(answer(engine, *one) for one in asked))]

    return asyncio.run(together())
