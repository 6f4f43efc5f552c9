"""The admin port: probes and metrics. It has a thread of its own, so that load on the API cannot delay them."""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from tidegate_contracts import proxy_process

from .telemetry.exposition import pieces
from .telemetry.meter import Meter

PAUSE_SECONDS = 0.0005
"""Between two pieces of the metrics."""


def make_admin(
    ready: Callable[[], str], server_ready: Callable[[str], str | None], registry: CollectorRegistry, meter: Meter
) -> FastAPI:
    """Return the application. `ready` says why the proxy is not, or nothing; `server_ready` the same of a server, and
    None of one that nobody knows; `meter` has the counts of calls.
    """
    app = FastAPI(title="Tidegate inference proxy: probes and metrics", openapi_url=None)

    @app.get(proxy_process.LIVE_PATH)
    async def live() -> Response:
        return PlainTextResponse("ok\n")

    @app.get(proxy_process.READY_PATH)
    async def whole() -> Response:
        why = ready()
        return PlainTextResponse(f"{why or 'ready'}\n", 503 if why else 200)

    @app.get(f"{proxy_process.SERVER_READY_PATH}/{{server}}")
    async def one(server: str) -> Response:
        why = server_ready(server)
        if why is None:
            return PlainTextResponse("the routing table has no such server\n", 404)
        return PlainTextResponse(f"{why or 'ready'}\n", 503 if why else 200)

    @app.get(proxy_process.METRICS_PATH)
    async def metrics() -> Response:
        # Thousands of models have a great many lines: probes, and calls on the other thread, have their turn meanwhile.
        said = [await asyncio.to_thread(generate_latest, registry)]
        for piece in pieces(meter):
            said.append(piece.encode())
            await asyncio.sleep(PAUSE_SECONDS)
        return Response(b"".join(said), media_type=CONTENT_TYPE_LATEST)

    return app
