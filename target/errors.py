"""Errors in the form of the OpenAI API: every refusal has a status, and names what to change."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from target.admission import BusyError
from target.engines import OutOfMemoryError, PromptError

WORDING = {
    "extra_forbidden": "unknown key",
    "model_attributes_type": "must be a JSON object, sent as Content-Type: application/json",
}


class ApiError(Exception):
    """The request cannot be answered as it stands."""

    def __init__(self, status: int, message: str, param: str | None, code: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


def body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    """The error object of an answer or of an event in a stream."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def answer(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An answer that says no."""
    return JSONResponse(body(status, message, param, code), status, headers)


def as_answer(error: Exception) -> JSONResponse:
    """The answer for any exception of a request."""
    match error:
        case ApiError():
            return answer(error.status, str(error), error.param, error.code)
        case PromptError():
            return answer(400, str(error), "messages", "invalid_messages")
        case BusyError():
            retry = {"Retry-After": str(error.retry_after_s)}
            return answer(503, str(error), code="server_busy", headers=retry)
        case OutOfMemoryError():
            return answer(503, str(error), code="out_of_memory", headers={"Retry-After": "1"})
        case HTTPException():
            phrase = HTTPStatus(error.status_code).phrase
            code = phrase.lower().replace(" ", "_")
            return answer(error.status_code, str(error.detail), code=code, headers=error.headers)
        case RequestValidationError():
            return invalid(error)
        case _:
            return answer(500, f"{type(error).__name__}: {error}", code="internal_error")


def invalid(error: RequestValidationError) -> JSONResponse:
    """All mistakes of a body in one message; `param` is the first of them."""
    mistakes = []
    for mistake in error.errors():
        key = ".".join(str(part) for part in mistake["loc"] if part != "body")
        text = WORDING.get(mistake["type"], mistake["msg"])
        given = mistake.get("input")
        shown = f" (got {given!r})" if isinstance(given, str | int | float | bool) else ""
        mistakes.append((key, f"{key or 'body'}: {text}{shown if len(shown) < 80 else ''}"))
    message = "; ".join(text for _, text in mistakes)
    return answer(400, message, mistakes[0][0] or None, "invalid_body")


def install(app: FastAPI, count_invalid: Callable[[], None]) -> None:
    """Let every exception of `app` be answered in this form, and bodies that are wrong counted."""

    async def handler(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, RequestValidationError):
            count_invalid()
        return as_answer(error)

    known = (ApiError, PromptError, BusyError, OutOfMemoryError, HTTPException)
    for kind in (*known, RequestValidationError, Exception):
        app.add_exception_handler(kind, handler)
