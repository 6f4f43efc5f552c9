"""What is not hot: documentation, health, and what is asked of servers rather than models; a FastAPI application.

Nothing here reads a body: calls of models, which have bodies, never come here.
"""

import logging
from collections.abc import Awaitable, Callable
from itertools import product

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .openapi import document
from .problems import CONTENT_TYPE, TWO_CREDENTIALS, Kind, Problem
from .request_ids import is_request_id, new_request_id
from .servers import ServerQueries, as_it_is
from .targets import ANYTHING
from .telemetry.meter import Meter
from .upstream.request import Answer

_BY_STATUS = {400: Kind.MALFORMED, 404: Kind.UNKNOWN, 405: Kind.METHOD, 413: Kind.TOO_LONG, 422: Kind.MALFORMED}
_CREDENTIALS = {b"authorization", b"x-api-key", b"x-domino-api-key"}
log = logging.getLogger(__name__)


async def _nothing() -> Message:
    """Stand for the body, so that a defect cannot make one be read: nothing here would bound it."""
    return {"type": "http.request", "body": b"", "more_body": False}


class _Named:
    """Gives every request an id, the caller's own if it has one, and tells it in every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = dict(scope["headers"]).get(b"x-request-id", b"")
        scope["request_id"] = request_id = own if is_request_id(own) else new_request_id()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, _nothing, named)


def make_app(servers: ServerQueries, ready: Callable[[], str], meter: Meter) -> ASGIApp:
    """Return the application; `ready` says why the proxy is not, or nothing; `meter` counts its problems."""
    app = FastAPI(title="Tidegate inference proxy", redirect_slashes=False, redoc_url=None)
    app.openapi = document  # type: ignore[method-assign]  # as FastAPI would have it: "Extending OpenAPI" in its docs
    app.state.meter = meter
    for error in (Problem, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, _tell)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the proxy runs."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Whether the proxy takes requests."""
        if why := ready():
            raise Problem(Kind.BUSY, why, 1.0)
        return {"status": "ready"}

    @app.options(ANYTHING.decode(), include_in_schema=False)
    async def options() -> Response:
        """The methods that there are (RFC 9110, 9.3.7)."""
        return Response(status_code=204, headers={"allow": "GET, POST"})

    def credential(request: Request) -> bytes:
        said = [(name, value) for name, value in request.headers.raw if name in _CREDENTIALS]
        if len(said) > 1:
            raise Problem(Kind.MALFORMED, TWO_CREDENTIALS)
        name, value = said[0] if said else (b"authorization", b"")
        return value if name == b"authorization" else name + b" " + value

    @app.get("/whoami")
    async def whoami(request: Request) -> Response:
        """As whom the proxy knows the caller."""
        return await servers.whoami(credential(request))

    async def live(credential: bytes, server: str | None) -> Response:
        await servers.live(credential, server)
        return as_it_is(Answer(200, "text/plain"))

    async def is_ready(credential: bytes, server: str | None) -> Response:
        return as_it_is(Answer(200 if await servers.is_ready(credential, server) else 400, "text/plain"))

    async def metadata(credential: bytes, server: str | None) -> Response:
        return as_it_is(await servers.metadata(credential, server))

    def add(path: str, answer: Callable[[bytes, str | None], Awaitable[Response]]) -> None:
        async def whole(request: Request) -> Response:
            return await answer(credential(request), None)

        async def one(request: Request, server: str) -> Response:
            return await answer(credential(request), server)

        app.add_api_route(path, whole, methods=["GET"])
        app.add_api_route("/servers/{server}" + path, one, methods=["GET"])

    add("/v2/health/live", live)
    add("/v2/health/ready", is_ready)
    add("/v2", metadata)
    add("/v2/models/stats", servers.statistics)

    # Last, for `/v2/models/stats` is no model.
    async def spelled(request: Request) -> Response:
        # Calls of models never come here: `http` has taken each that is spelled as the protocol has it.
        raise Problem(Kind.UNKNOWN, f"No call is spelled like this one. See {request.base_url}docs.")

    models = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
    for method, tails in _MODEL_PATHS.items():
        for prefix, model, tail in product(("", "/servers/{server}"), models, tails):
            app.add_api_route(prefix + model + tail, spelled, methods=[method])
    return _Named(app)


_MODEL_PATHS = {"GET": ("", "/ready", "/config", "/stats"), "POST": ("/infer", "/generate", "/generate_stream")}


async def _tell(request: Request, error: Exception) -> Response:
    """Answer with the problem that an exception is."""
    request_id: str = request.scope["request_id"].decode()
    if isinstance(error, Problem):
        problem = error
    elif isinstance(error, HTTPException):
        problem = _of_starlette(request, error)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        problem = Problem(Kind.MALFORMED, f"{'.'.join(map(str, first['loc']))}: {first['msg']}.")
    else:
        log.error("request %s met a defect", request_id, exc_info=error)
        problem = Problem(Kind.INTERNAL, "It is in the log, under this request's id.")
    request.app.state.meter.problems[problem.kind.word] += 1
    headers = {name.decode(): value.decode() for name, value in problem.headers()}
    return Response(problem.body(request_id), problem.kind.status, headers, CONTENT_TYPE)


def _of_starlette(request: Request, error: HTTPException) -> Problem:
    kind = _BY_STATUS.get(error.status_code, Kind.INTERNAL)
    allow = (error.headers or {}).get("Allow")
    details = {
        Kind.UNKNOWN: f"Nothing is called {request.url.path[:200]!r} here. See {request.base_url}docs.",
        Kind.METHOD: f"This address takes {allow}.",
    }
    return Problem(kind, details.get(kind, str(error.detail)), allow=allow)
