"""The server as an ASGI application: text, and what the server says about itself."""

import os
import platform
import time
from importlib import metadata

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from target import errors, generate_routes, openai_routes
from target.engines import Engine
from target.service import Service

STARTED_WALL_NS = time.time_ns()


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
        "prefix_caching": False,
        "pid": os.getpid(),
        "process_start_wall_ns": STARTED_WALL_NS,
    }


def create_app(service: Service) -> FastAPI:
    """All routes of the server over one loaded engine."""
    app = FastAPI(title="tailgate target", openapi_url=None)
    errors.install(app, service.metrics.requests.labels("invalid").inc)
    app.include_router(openai_routes.router(service))
    app.include_router(generate_routes.router(service))
    info = about(service)

    @app.get("/health")
    async def health() -> Response:
        if service.admission.draining:
            return JSONResponse({"status": "draining"}, 503, {"Retry-After": "5"})
        return JSONResponse({"status": "ready"})

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
