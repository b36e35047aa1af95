"""The server as an ASGI application: text, and what the server says about itself."""

import os
import platform
import time
from importlib import metadata
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse, Response

from target import errors, generate_routes, openai_routes
from target.engines import Engine
from target.service import Service

STARTED_WALL_NS = time.time_ns()
CHAT_PAGE = Path(__file__).with_name("chat_page.html")
# The page asks no other host, and nobody may put it in a frame.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
DEGRADED_S = 60.0  # so long after a lack of memory


def versions(engine: Engine) -> dict[str, str]:
    """Versions of what runs here, by package name; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in ("tailgate", "fastapi", "uvicorn", *engine.packages):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def about(service: Service) -> dict[str, object]:
    """GET /info: everything that a result should name about its target."""
    engine = service.engine
    return {
        "model": engine.model,
        "engine": engine.name,
        "mode": engine.mode,
        "dtype": engine.dtype,
        "device": engine.device,
        "reasoning": service.presentation,
        "context": engine.context,
        "max_running": service.admission.slots,
        "max_queue": service.admission.queue,
        "think_tokens": engine.think_tokens,
        "flags": dict(engine.flags),
        "versions": versions(engine),
        "gpu": engine.gpu,
        "prefix_caching": engine.prefix_caching,
        "temperature_policy": dict(service.policy),
        "startup": dict(service.startup),
        "pid": os.getpid(),
        "process_start_wall_ns": STARTED_WALL_NS,
    }


def health_of(service: Service) -> tuple[int, dict[str, object]]:
    """Ready, degraded with reasons (still answering), draining or dead, and its HTTP status."""
    if (why := service.engine.trouble()) is not None:
        return 503, {"status": "dead", "reasons": [why]}
    if service.admission.draining:
        return 503, {"status": "draining"}
    reasons = []
    at_s = service.metrics.out_of_memory_s
    if at_s is not None and time.monotonic() - at_s < DEGRADED_S:
        reasons.append(f"the GPU had no memory left {time.monotonic() - at_s:.0f} s ago")
    alert = service.metrics.alert
    if alert is not None and alert.firing:
        reasons.append(f"P{alert.rule.percentile:g} is over {alert.rule.limit_s:g} s")
    if reasons:
        return 200, {"status": "degraded", "reasons": reasons}
    return 200, {"status": "ready"}


def create_app(service: Service) -> FastAPI:
    """All routes of the server over one loaded engine."""
    app = FastAPI(title="tailgate target", openapi_url=None)
    errors.install(app, service.metrics.requests.labels("invalid").inc)
    app.include_router(openai_routes.router(service))
    app.include_router(generate_routes.router(service))
    info = about(service)
    page = CHAT_PAGE.read_text(encoding="utf-8")

    @app.get("/health")
    async def health() -> Response:
        status, state = health_of(service)
        return JSONResponse(state, status, {"Retry-After": "5"} if status == 503 else None)

    @app.get("/")
    async def chat_page() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": PAGE_POLICY})

    @app.get("/info")
    async def get_info() -> Response:
        return JSONResponse(info)

    @app.get("/clock")
    async def clock() -> Response:
        receive = {"receive_wall_ns": time.time_ns(), "receive_mono_ns": time.monotonic_ns()}
        send = {"send_wall_ns": time.time_ns(), "send_mono_ns": time.monotonic_ns()}
        return JSONResponse({**receive, **send})

    @app.get("/v1/models")
    async def models() -> Response:
        created = STARTED_WALL_NS // 10**9
        model = {"id": service.engine.model, "object": "model", "created": created}
        limits = {"owned_by": "tailgate", "max_model_len": service.engine.context}
        return JSONResponse({"object": "list", "data": [{**model, **limits}]})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type="text/plain; version=1.0.0")

    return app
