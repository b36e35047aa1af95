"""One request from its prompt to its last token: admission, tokenising, engine, text, counts."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from target.admission import Admission
from target.engines import Engine, FinishReason, Params, Timings
from target.errors import ApiError
from target.memory_trend import MemoryTrend
from target.metrics import Metrics
from target.temperature import Policy
from target.visible_text import Piece, Presentation, Reader


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as token ids."""

    tokens: list[int]
    opens_thinking: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request wants; `max_tokens` None is what the context has left, up to a default."""

    tokenize: Callable[[], Prompt]
    presentation: Presentation
    params: Params
    max_tokens: int | None
    stops: Sequence[str] = ()
    default_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """Text that one step made visible, and the tokens up to then."""

    pieces: list[Piece]
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ended, after its last piece."""

    finish: FinishReason
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int
    timings: Timings
    last_s: float  # its last token, on the monotonic clock


@dataclass(frozen=True, slots=True)
class Service:
    """A loaded engine behind its door."""

    engine: Engine
    admission: Admission
    metrics: Metrics
    memory: MemoryTrend
    presentation: Presentation
    policy: Policy = field(default_factory=dict)  # temperature by kind of prompt
    startup: Mapping[str, float] = field(default_factory=dict)


async def answer(service: Service, ask: Ask) -> AsyncGenerator[Said | Ending, None]:
    """Text as it becomes visible, for each step that shows any, then the Ending.

    Raises BusyError, ApiError or OutOfMemoryError before the first piece.
    """
    received = time.monotonic()
    with service.metrics.outcome(), service.admission.place():
        prompt = await asyncio.to_thread(ask.tokenize)
        tokenized = time.monotonic()
        refuse_unsupported(ask.params, service.engine)
        params = limited(ask, len(prompt.tokens), service.engine.context)
        async with service.admission.slot():
            waited = Timings(time.monotonic() - tokenized, tokenized - received)
            service.metrics.prompt_tokens.inc(len(prompt.tokens))
            reader = Reader(
                service.engine.vocabulary,
                ask.presentation,
                prompt.opens_thinking and ask.presentation != "none",
                ask.stops,
                params.min_tokens,
            )
            with service.memory.request():
                async with aclosing(compute(service, prompt, params, reader, received)) as parts:
                    async for part in parts:
                        if isinstance(part, Ending):
                            part = ended(service, part, waited, received)
                        yield part


def ended(service: Service, ending: Ending, waited: Timings, received: float) -> Ending:
    """The ending with the whole of its times, which are counted."""
    own = ending.timings
    queue_s = own.queue_s + waited.queue_s
    timings = replace(own, queue_s=queue_s, tokenize_s=waited.tokenize_s)
    service.metrics.ended(timings, ending.last_s - received)
    return replace(ending, timings=timings)


async def compute(
    service: Service, prompt: Prompt, params: Params, reader: Reader, received: float
) -> AsyncGenerator[Said | Ending, None]:
    """The engine's steps as pieces; `received` is when the request came, for the histograms."""
    metrics = service.metrics
    start = first = last = time.monotonic()
    finish: FinishReason = "length"
    timings: Timings | None = None
    reading_s = 0.0
    async with aclosing(service.engine.generate(prompt.tokens, params)) as steps:
        async for step in steps:
            if isinstance(step, Timings):
                timings = step
                break
            pieces: list[Piece] = []
            if reader.tokens == 0:
                pieces.extend(reader.opening())
                first = step.at_s
                metrics.ttft.observe(first - received)
            else:
                metrics.itl.observe(step.at_s - last)
            last = step.at_s
            metrics.output_tokens.inc(len(step.tokens))
            reading = time.monotonic()
            for token in step.tokens:
                if not reader.stopped:
                    pieces.extend(reader.read(token))
            reading_s += time.monotonic() - reading
            finish = "stop" if reader.stopped else step.finish or finish
            if step.finish:
                pieces.extend(reader.rest())
            if pieces:
                yield Said(pieces, len(prompt.tokens), reader.tokens, reader.reasoning_tokens)
            if reader.stopped:
                break
    timings = timings or Timings(prefill_s=first - start, decode_s=last - first)
    yield Ending(
        finish,
        len(prompt.tokens),
        reader.tokens,
        reader.reasoning_tokens,
        replace(timings, detokenize_s=reading_s),
        last,
    )


def refuse_unsupported(params: Params, engine: Engine) -> None:
    """Raise ApiError where a request sets what this engine would have to ignore."""
    given = {
        "seed": params.seed is not None,
        "min_tokens": params.min_tokens > 0 and not params.ignore_eos,
    }
    for name in sorted(engine.unsupported):
        if given[name]:
            message = f"{name}: --mode {engine.mode} cannot do that; leave it out"
            raise ApiError(400, message, name, "unsupported_parameter")


def limited(ask: Ask, prompt_tokens: int, context: int) -> Params:
    """Parameters that fit the context; raises ApiError where the request does not."""
    left = context - prompt_tokens
    wanted = ask.max_tokens or min(left, ask.default_tokens or left)
    if wanted > left or left < 1:
        asked = ask.max_tokens or 1
        raise ApiError(
            400,
            f"the context is {context} tokens, but {prompt_tokens + asked} were asked for: "
            f"{prompt_tokens} in the prompt and {asked} for the answer",
            None if ask.max_tokens is None else "max_tokens",
            "context_length_exceeded",
        )
    if ask.params.min_tokens > wanted:
        raise ApiError(
            400,
            f"min_tokens is {ask.params.min_tokens}, more than max_tokens, {wanted}",
            "min_tokens",
            "invalid_body",
        )
    think = ask.params.think_tokens
    return replace(
        ask.params,
        max_tokens=wanted,
        # Half of a short answer at most, so that there is an answer after the reasoning.
        think_tokens=None if think is None else min(think, wanted // 2),
    )
