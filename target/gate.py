"""What stands before every route: the engine is still loading, or the key is wrong."""

import hmac

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from target import errors
from target.startup import Startup

GUARDED = ("/v1/", "/generate")


class Gate:
    """The application once it is there; until then 503, and `/health` says how far it is."""

    def __init__(self, startup: Startup, api_key: str | None) -> None:
        self.startup = startup
        self.api_key = api_key
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
        elif self.app is not None:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        path: str = scope["path"]
        if self.app is None:
            retry = {"Retry-After": "1"}
            if path == "/health":
                state = {"status": "starting", "phase": self.startup.current}
                return JSONResponse({**state, **self.startup.report()}, 503, retry)
            return errors.answer(503, "the model is loading", code="starting", headers=retry)
        if self.api_key is not None and path.startswith(GUARDED):
            headers = dict(scope["headers"])
            given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(given, self.api_key.encode()):
                challenge = {"WWW-Authenticate": "Bearer"}
                message = "a valid key is needed: Authorization: Bearer KEY"
                return errors.answer(401, message, code="invalid_api_key", headers=challenge)
        return None
