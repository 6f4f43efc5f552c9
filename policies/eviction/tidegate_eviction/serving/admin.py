"""The admin port: probes and metrics."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from tidegate_contracts import eviction_process

from . import metrics
from .metrics import Snapshot

STALLED_SECONDS = 20.0
"""After this time without a beat, the policy's main thread hangs, and the liveness probe fails."""
SNAPSHOT_SECONDS = 5.0


class Heartbeat:
    """Shows that the policy's main thread runs. The thread beats every second."""

    def __init__(self) -> None:
        self._last = monotonic()

    def beat(self) -> None:
        self._last = monotonic()

    def why_stalled(self) -> str:
        """Return why the process is not alive, or an empty text."""
        seconds = monotonic() - self._last
        return f"the policy has done nothing for {seconds:.0f} s" if seconds > STALLED_SECONDS else ""


def make_admin(snapshot: Callable[[], "Future[Snapshot]"], stalled: Callable[[], str]) -> FastAPI:
    """Return the application. `stalled` returns why the main thread, which takes snapshots, hangs, or an empty text."""
    app = FastAPI(title="Tidegate eviction policy: probes, metrics", openapi_url=None)

    @app.get(eviction_process.STARTED_PATH)
    async def started() -> Response:
        return PlainTextResponse("started\n")  # The control secret is written before this port opens.

    @app.get(eviction_process.LIVE_PATH)
    async def live() -> Response:
        why = stalled()
        return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200)

    @app.get(eviction_process.METRICS_PATH)
    async def scrape() -> Response:
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS):
                seen = await asyncio.wrap_future(snapshot())
        except TimeoutError:
            return PlainTextResponse("the policy does not answer\n", 503)
        return Response(metrics.render(seen), media_type=CONTENT_TYPE_LATEST)

    return app
