"""The simulated engine: tokens at chosen times, and no model.

Without `--gpu`, the time to the first token and the gaps between tokens are fixed, or log-normal
around the same median; slots are bounded by the server's admission, first come first served. With
`--gpu`, a scheduler with that GPU's physics decides (target.sim_player).
"""

import argparse
import itertools
import math
import random
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from target.engines import Engine, EngineError, Params, Step, Timings
from target.faults import FaultError, Faults, read_faults
from target.sim_player import build_player, until
from target.sim_text import read_answers
from target.startup import Startup

CONTEXT = 32_768
SLOTS = 8


def waits(rng: random.Random, args: argparse.Namespace) -> Iterator[float]:
    """Seconds to the first token, then from each token to the next, without end."""
    for median_ms, sigma, count in (
        (args.ttft_ms, args.ttft_sigma, 1),
        (args.itl_ms, args.itl_sigma, None),
    ):
        for _ in itertools.repeat(None) if count is None else range(count):
            yield median_ms / 1000 * (math.exp(rng.gauss(0.0, sigma)) if sigma else 1.0)


def build(args: argparse.Namespace, startup: Startup) -> Engine:
    """The engine as the options of `serve` describe it."""
    try:
        faults = read_faults(args.fault, args.seed)
    except FaultError as error:
        raise EngineError(str(error)) from error
    answers = read_answers(args.answers)
    if args.gpu is not None:
        return build_player(args, faults, answers)
    born = time.monotonic()
    count = Count()

    async def generate(
        prompt: Sequence[int], params: Params
    ) -> AsyncGenerator[Step | Timings, None]:
        number = count.began
        count.began += 1
        # Times and words have streams of their own, so that a request's seed fixes only its text.
        gaps = waits(random.Random(f"{args.seed} times {number}"), args)
        words = random.Random(f"{args.seed} words {number}" if params.seed is None else params.seed)
        start = due = time.monotonic()
        first = None
        count.running += 1
        try:
            wrong = faults.wrong(number, count.running)
            for token, finish in answers.tokens(prompt, params, words, wrong):
                # A deadline, so that late tokens do not delay the later ones.
                due = born + faults.lasting(due - born, next(gaps))
                await until(due)
                now = time.monotonic()
                first = first or now
                yield Step((token,), now, finish)
        finally:
            count.running -= 1
        first = first or start
        yield Timings(prefill_s=first - start, decode_s=time.monotonic() - first)

    drawn = args.ttft_sigma or args.itl_sigma
    names = ("ttft_ms", "itl_ms", "ttft_sigma", "itl_sigma", "seed", "fault")
    return Engine(
        name="sim",
        model="sim" if args.model is None else args.model,
        mode="log-normal" if drawn else "fixed",
        dtype="none",
        device="none",
        context=CONTEXT,
        slots=args.max_running or SLOTS,
        generate=generate,
        vocabulary=answers.vocabulary(),
        think_tokens=32 if args.think_tokens is None else args.think_tokens,
        flags={name: getattr(args, name) for name in names},
        memory=lambda: leaked(faults, count),
    )


@dataclass(slots=True)
class Count:
    """Requests that began, and those that run."""

    began: int = 0
    running: int = 0


def leaked(faults: Faults, count: Count) -> tuple[int, int] | None:
    """Memory as a leak leaves it; there is none to tell of without one."""
    lost = int(faults.leaked_bytes(count.began - count.running))
    return (lost, lost) if any(faults.of("leak")) else None
