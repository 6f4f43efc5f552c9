"""The lease API over HTTP, with the messages of `tidegate_contracts.lease`."""

import asyncio
import logging
from time import monotonic
from typing import TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from tidegate_contracts import lease
from tidegate_contracts.message import Message
from tidegate_service.json_lines import LinesASecond

from .callers import Callers, NotLetInError, check_holder
from .service import EvictionService

BODY_BYTES = 8 << 20  # The largest message. A renewal of ten thousand models is a tenth of it.
REFUSALS_A_SECOND = 1  # Refusals that are logged per second. The others are counted.
Received = TypeVar("Received", lease.Acquire, lease.Renew, lease.Release)
log = logging.getLogger(__name__)


def make_lease_api(service: EvictionService, callers: Callers) -> FastAPI:
    """Return the HTTP application with which proxies acquire, renew and release leases."""
    app = FastAPI(title="Tidegate eviction policy: leases", openapi_url=None, redirect_slashes=False)
    refusals = LinesASecond(REFUSALS_A_SECOND)

    @app.exception_handler(HTTPException)
    async def wrong(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"why": error.detail}, error.status_code)

    @app.exception_handler(NotLetInError)
    async def not_let_in(request: Request, error: NotLetInError) -> Response:
        service.counts.totals["refused_messages"].inc()
        if refusals.wants(monotonic()):
            fields = {"event": "lease-refused", "why": str(error), **refusals.left_out()}
            log.warning("a message from %s was refused", request.client and request.client.host, extra={"data": fields})
        headers = {"www-authenticate": "Bearer"} if error.status == 401 else None
        return JSONResponse({"why": str(error)}, error.status, headers)

    async def identify(request: Request) -> str | None:
        return await callers.identify(request.headers.get("authorization"))

    async def authenticated(request: Request, kind: type[Received]) -> Received:
        # The credential is verified before the body is read.
        pod = await identify(request)
        message = await _message(request, kind)
        check_holder(pod, message.holder)
        return message

    @app.post(lease.ACQUIRE_PATH)
    async def acquire(request: Request) -> Response:
        message = await authenticated(request, lease.Acquire)
        answer = await service.acquire(message, lambda: asyncio.create_task(_hung_up(request)))
        if answer is None:
            return Response(status_code=499)  # The caller has disconnected.
        after = {"retry-after": str(max(1, -int(-answer.retry_after // 1)))} if isinstance(answer, lease.Busy) else {}
        return _json(answer, lease.STATUS[answer.outcome], after)

    @app.post(lease.RENEW_PATH)
    async def renew(request: Request) -> Response:
        return _json(service.renew(await authenticated(request, lease.Renew)))

    @app.post(lease.RELEASE_PATH)
    async def release(request: Request) -> Response:
        service.release(await authenticated(request, lease.Release))
        return Response(status_code=204)

    @app.get(lease.MODELS_PATH)
    async def models(request: Request) -> Response:
        await identify(request)
        return _json(service.listing())

    return app


async def _message(request: Request, kind: type[Received]) -> Received:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES:
                raise HTTPException(413, f"The message is too large: the limit is {BODY_BYTES} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "The message is incomplete.") from None
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the message"
        raise HTTPException(400, f"{where}: {first['msg']}") from None


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(message: Message, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(message.model_dump_json(by_alias=True), status, headers, "application/json")
