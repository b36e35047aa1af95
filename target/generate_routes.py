"""POST /generate and /generate_stream, as the source articles' own server has them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from target.engines import Params
from target.openai_bodies import GenerateBody
from target.openai_routes import milliseconds
from target.service import Ask, Ending, Prompt, Service, answer
from target.streaming import Stream, compact, line, until_gone

DEFAULT_MAX_TOKENS = 2048
TOP_P = 0.95


def ask_generate(service: Service, body: GenerateBody) -> Ask:
    """The prompt as it stands, sampled as the articles do."""
    encode = service.engine.vocabulary.encode

    def tokenize() -> Prompt:
        return Prompt(encode(body.prompt))

    params = Params(0, temperature=body.temperature, top_p=TOP_P)
    return Ask(tokenize, "none", params, body.max_tokens, default_tokens=DEFAULT_MAX_TOKENS)


async def whole(service: Service, ask: Ask) -> Response:
    """{"response": text}."""
    text = ""
    async with aclosing(answer(service, ask)) as parts:
        async for part in parts:
            if not isinstance(part, Ending):
                text += "".join(piece.text for piece in part.pieces)
    return JSONResponse({"response": text})


async def lines(service: Service, ask: Ask) -> AsyncGenerator[bytes, None]:
    """One JSON object a line: {"response": new text}, and at last why it ended."""
    async with aclosing(answer(service, ask)) as parts:
        async for part in parts:
            data: dict[str, object] = {}
            if isinstance(part, Ending):
                data["finish_reason"] = part.finish
                data["output_tokens"] = part.output_tokens
                data["timings"] = milliseconds(part.timings)
            else:
                data["response"] = "".join(piece.text for piece in part.pieces)
            yield line(compact(data))


def router(service: Service) -> APIRouter:
    """The articles' two routes."""
    routes = APIRouter()

    @routes.post("/generate")
    async def generate(body: GenerateBody, request: Request) -> Response:
        work = whole(service, ask_generate(service, body))
        return await until_gone(request.receive, work) or Response(status_code=499)

    @routes.post("/generate_stream")
    async def generate_stream(body: GenerateBody) -> Response:
        return Stream(lines(service, ask_generate(service, body)), "application/x-ndjson", line)

    return routes
