"""What is not hot: documentation, health, and what is asked of servers rather than models; a FastAPI application.

Nothing here reads a body: calls of models, which have bodies, never come here.
"""

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .openapi import document
from .problems import CONTENT_TYPE, TWO_CREDENTIALS, Kind, Problem
from .request_ids import is_request_id, new_request_id
from .servers import ServerQueries
from .targets import ANYTHING
from .telemetry.meter import Meter

_BY_STATUS = {
    400: Kind.MALFORMED,
    404: Kind.UNKNOWN,
    405: Kind.METHOD,
    413: Kind.TOO_LONG,
    422: Kind.MALFORMED,
}
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
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _defect)

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

    def add(path: str, answer: Callable[[bytes, str | None], Awaitable[Response]]) -> None:
        async def whole(request: Request) -> Response:
            return await answer(credential(request), None)

        async def one(request: Request, server: str) -> Response:
            return await answer(credential(request), server)

        app.add_api_route(path, whole, methods=["GET"])
        app.add_api_route("/servers/{server}" + path, one, methods=["GET"])

    add("/v2/health/live", servers.live)
    add("/v2/health/ready", servers.ready)
    add("/v2", servers.metadata)
    add("/v2/models/stats", servers.statistics)

    # Last, for `/v2/models/stats` is no model.
    async def spelled(request: Request) -> Response:
        # Calls of models never come here: `http` has taken each that is spelled as the protocol has it.
        raise Problem(Kind.UNKNOWN, f"No call is spelled like this one. See {request.base_url}docs.")

    for path, method in _MODEL_PATHS:
        for prefix in ("", "/servers/{server}"):
            app.add_api_route(prefix + path, spelled, methods=[method])
    return _Named(app)


_MODEL_PATHS = [
    (f"/v2/models/{{model}}{version}{tail}", method)
    for version in ("", "/versions/{version}")
    for method, tails in (
        ("GET", ("", "/ready", "/config", "/stats")),
        ("POST", ("/infer", "/generate", "/generate_stream")),
    )
    for tail in tails
]


def _answer(request: Request, problem: Problem) -> Response:
    request.app.state.meter.problems[problem.kind.word] += 1
    headers = {name.decode(): value.decode() for name, value in problem.headers()}
    return Response(problem.body(_id_of(request)), problem.kind.status, headers, CONTENT_TYPE)


def _id_of(request: Request) -> str:
    request_id: bytes = request.scope["request_id"]
    return request_id.decode()


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _answer(request, error)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = _BY_STATUS.get(error.status_code, Kind.INTERNAL)
    allow = (error.headers or {}).get("Allow")
    details = {
        Kind.UNKNOWN: f"Nothing is called {request.url.path[:200]!r} here. See {request.base_url}docs.",
        Kind.METHOD: f"This address takes {allow}.",
    }
    return _answer(request, Problem(kind, details.get(kind, str(error.detail)), allow=allow))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return _answer(request, Problem(Kind.MALFORMED, f"{'.'.join(map(str, first['loc']))}: {first['msg']}."))


async def _defect(request: Request, error: Exception) -> Response:
    log.error("request %s met a defect", _id_of(request), exc_info=error)
    return _answer(request, Problem(Kind.INTERNAL, "It is in the log, under this request's id."))
