"""The admin port: probes, metrics and the page. It has a thread of its own, so that leases cannot delay them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import TypeVar

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from tidegate_contracts import eviction_process, lease

from . import metrics, page
from .view import View

STALLED_SECONDS = 20.0
"""Without a turn for so long the policy's own thread hangs, and the process is to be restarted."""
VIEW_SECONDS = 5.0
Shown = TypeVar("Shown")


class Heartbeat:
    """Shows that the policy's own thread has its turns."""

    def __init__(self) -> None:
        self._last = monotonic()

    async def beat(self) -> None:
        """Beat, for ever."""
        while True:
            self._last = monotonic()
            await asyncio.sleep(1.0)

    def why_stalled(self) -> str:
        """Return why the process is not alive, or nothing."""
        seconds = monotonic() - self._last
        return f"the policy has done nothing for {seconds:.0f} s" if seconds > STALLED_SECONDS else ""


def make_admin(view: Callable[[], "Future[View]"], stalled: Callable[[], str]) -> FastAPI:
    """Return the application. `view` has the policy's own thread look; `stalled` says why that hangs, or nothing.

    It serves only once the control secret is in its folder, which is what the start-up probe asks.
    """
    app = FastAPI(title="Tidegate eviction policy: probes, metrics, page", openapi_url=None)

    async def shown(show: Callable[[View], Shown], answer: Callable[[Shown], Response]) -> Response:
        try:
            async with asyncio.timeout(VIEW_SECONDS):
                return answer(show(await asyncio.wrap_future(view())))
        except TimeoutError:
            return PlainTextResponse("the policy does not answer\n", 503)

    @app.get(eviction_process.STARTED_PATH)
    async def started() -> Response:
        return PlainTextResponse("started\n")

    @app.get(eviction_process.LIVE_PATH)
    async def live() -> Response:
        why = stalled()
        return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200)

    @app.get(eviction_process.METRICS_PATH)
    async def scrape() -> Response:
        return await shown(metrics.render, lambda text: Response(text, media_type=CONTENT_TYPE_LATEST))

    @app.get(lease.MODELS_PATH)
    async def models() -> Response:
        return await shown(
            lambda seen: seen.listing.model_dump_json(by_alias=True),
            lambda text: Response(text, media_type="application/json"),
        )

    @app.get("/")
    async def overview() -> Response:
        return await shown(page.render, lambda text: HTMLResponse(text, headers=page.HEADERS))

    return app
