"""Faults that hit single requests, put before any engine."""

import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from target.admission import BusyError
from target.engines import CutError, Engine, OutOfMemoryError, Params, Step, Timings
from target.faults import Faults


class InjectedError(Exception):
    """A failure that was asked for."""


def injected(engine: Engine, faults: Faults) -> Engine:
    """The engine with the errors, refusals and cuts that the faults say."""
    if not faults.faults:
        return engine
    numbers = itertools.count()

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        number = next(numbers)
        if faults.hits("error", number):
            raise InjectedError("an injected fault")
        if faults.hits("busy", number):
            raise BusyError("no place is free: an injected fault", 1)
        if engine.name == "sim" and faults.hits("out-of-memory", number):
            raise OutOfMemoryError("the device has no memory for this request: an injected fault")
        cut = faults.hits("cut", number)
        left = cut["after"] if cut else None
        async with aclosing(engine.generate(prompt, params)) as parts:
            async for part in parts:
                if left is not None and isinstance(part, Step):
                    if left <= 0:
                        raise CutError("the connection is cut: an injected fault")
                    left -= len(part.tokens)
                yield part

    return replace(engine, generate=generate)
