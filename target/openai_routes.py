"""POST /v1/chat/completions and /v1/completions, streamed and not."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from target.engines import Params, Timings
from target.errors import ApiError
from target.openai_bodies import ChatBody, CompletionBody, StreamOptions
from target.service import Ask, Ending, Prompt, Said, Service, answer
from target.streaming import DONE, Stream, compact, event, until_gone
from target.temperature import kind_of
from target.visible_text import Piece


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is written: as chat or as completion, one object or chunks."""

    chat: bool
    id: str
    created: int
    model: str

    def head(self, *, chunk: bool) -> dict[str, object]:
        """The keys that every object of this answer begins with."""
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def chunk(self, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
        """A chunk with new text, with the role, or with the reason for the end."""
        text = {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        choice = {"index": 0, **text, "logprobs": None, "finish_reason": finish}
        return {**self.head(chunk=True), "choices": [choice]}

    def template(self, key: str) -> tuple[bytes, bytes]:
        """What stands before and after the text in each event: most of the cost of a token."""
        before, after = event(compact(self.chunk({key: "\0"}))).split(b'"\\u0000"')
        return before, after


async def events(
    form: Form, service: Service, ask: Ask, usage: bool, each_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events, `[DONE]` included; token counts at its end or in each."""

    def counted(chunk: dict[str, object], part: Said | Ending) -> bytes:
        return event(compact({**chunk, "usage": used(part)} if each_usage else chunk))

    around = {key: form.template(key) for key in ("content", "reasoning_content")[: 1 + form.chat]}
    opened = not form.chat
    async with aclosing(answer(service, ask)) as parts:
        async for part in parts:
            if not opened:
                opened = True
                role = form.chunk({"role": "assistant", "content": ""})
                yield counted(role, replace(part, output_tokens=0, reasoning_tokens=0))
            if isinstance(part, Ending):
                timings = {"timings": milliseconds(part.timings)}
                last = form.chunk({}, part.finish)
                if usage:
                    yield counted(last, part)
                    last = {**form.head(chunk=True), "choices": [], "usage": used(part)}
                yield event(compact({**last, **timings}))
                continue
            for piece in part.pieces:
                key = key_of(piece, ask)
                if each_usage:
                    yield counted(form.chunk({key: piece.text}), part)
                    continue
                before, after = around[key]
                yield before + compact(piece.text) + after
    yield DONE


async def whole(form: Form, service: Service, ask: Ask) -> Response:
    """The answer as one object."""
    text = {"content": "", "reasoning_content": ""}
    ending: Ending | None = None
    async with aclosing(answer(service, ask)) as parts:
        async for part in parts:
            if isinstance(part, Ending):
                ending = part
                continue
            for piece in part.pieces:
                text[key_of(piece, ask)] += piece.text
    assert ending is not None  # answer() ends with one, or raises
    if form.chat:
        reasoning = {"reasoning_content": text["reasoning_content"] or None}
        shown = reasoning if ask.presentation == "field" else {}
        said: dict[str, object] = {
            "message": {"role": "assistant", "content": text["content"], **shown}
        }
    else:
        said = {"text": text["content"]}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": ending.finish}
    body = {**form.head(chunk=False), "choices": [choice], "usage": used(ending)}
    times = milliseconds(ending.timings)
    header = ", ".join(f"{key.removesuffix('_ms')};dur={value}" for key, value in times.items())
    return JSONResponse({**body, "timings": times}, headers={"Server-Timing": header})


def key_of(piece: Piece, ask: Ask) -> str:
    """The key of a delta that a piece goes to."""
    split = piece.kind == "reasoning" and ask.presentation == "field"
    return "reasoning_content" if split else "content"


def used(part: Said | Ending) -> dict[str, object]:
    """Token counts as OpenAI gives them."""
    usage: dict[str, object] = {
        "prompt_tokens": part.prompt_tokens,
        "completion_tokens": part.output_tokens,
        "total_tokens": part.prompt_tokens + part.output_tokens,
    }
    if part.reasoning_tokens:
        usage["completion_tokens_details"] = {"reasoning_tokens": part.reasoning_tokens}
    return usage


def milliseconds(timings: Timings) -> dict[str, float]:
    """The stages of a request, to the microsecond."""
    return {
        "queue_ms": round(timings.queue_s * 1000, 3),
        "tokenize_ms": round(timings.tokenize_s * 1000, 3),
        "prefill_ms": round(timings.prefill_s * 1000, 3),
        "decode_ms": round(timings.decode_s * 1000, 3),
        "detokenize_ms": round(timings.detokenize_s * 1000, 3),
    }


def sampling(service: Service, body: ChatBody | CompletionBody, prompt: str) -> Params:
    """What the body says; where it is silent, the policy for this prompt or the model's default."""
    engine = service.engine
    temperature = body.temperature
    if temperature is None and service.policy:
        temperature = service.policy.get(kind_of(prompt))
    return Params(
        max_tokens=0,  # set when the length of the prompt is known
        temperature=engine.temperature if temperature is None else temperature,
        top_p=engine.top_p if body.top_p is None else body.top_p,
        seed=body.seed,
        ignore_eos=body.ignore_eos,
        min_tokens=body.min_tokens,
    )


def stops(body: ChatBody | CompletionBody) -> tuple[str, ...]:
    """Stop strings, none, one or many."""
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


def ask_chat(service: Service, body: ChatBody) -> Ask:
    """A chat as the engine is asked it: its reasoning is presented as this server does."""
    engine = service.engine
    thinks = service.presentation != "none"
    messages = [message.plain() for message in body.messages]
    asked = sampling(service, body, messages[-1]["content"])
    params = replace(asked, think_tokens=engine.think_tokens if thinks else None)
    limit = body.max_completion_tokens or body.max_tokens
    return Ask(
        lambda: Prompt(*engine.vocabulary.encode_chat(messages, thinks)),
        service.presentation,
        params,
        limit,
        stops(body),
    )


def ask_completion(service: Service, body: CompletionBody) -> Ask:
    """A prompt as it stands: nothing is added, so that nothing is known of its reasoning."""
    encode = service.engine.vocabulary.encode
    params = sampling(service, body, body.prompt)
    return Ask(lambda: Prompt(encode(body.prompt)), "none", params, body.max_tokens, stops(body))


async def respond(
    service: Service, body: ChatBody | CompletionBody, ask: Ask, request: Request
) -> Response:
    """The answer in the way that the body asks for."""
    model = service.engine.model
    if body.model not in (None, model):
        service.metrics.requests.labels("invalid").inc()
        message = f"model: {body.model!r} is not served here; allowed: {model!r}"
        raise ApiError(404, message, "model", "model_not_found")
    chat = isinstance(body, ChatBody)
    form = Form(
        chat, ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex, int(time.time()), model
    )
    if body.stream:
        wanted = body.stream_options or StreamOptions()
        each = wanted.include_usage and bool(wanted.continuous_usage_stats)
        return Stream(events(form, service, ask, wanted.include_usage, each))
    gone = Response(status_code=499)
    return await until_gone(request.receive, whole(form, service, ask)) or gone


def router(service: Service) -> APIRouter:
    """The routes of the OpenAI API that make text."""
    routes = APIRouter(prefix="/v1")

    @routes.post("/chat/completions")
    async def chat(body: ChatBody, request: Request) -> Response:
        return await respond(service, body, ask_chat(service, body), request)

    @routes.post("/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        return await respond(service, body, ask_completion(service, body), request)

    return routes
