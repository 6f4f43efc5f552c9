"""A FastAPI application for pages, health and queries about servers. It reads no bodies, so calls never come here."""

import logging
from collections.abc import Callable

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from tidegate_contracts.openai import is_served_name
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH

from .kinds import KINDS, problem_body
from .pages import OPENAPI_PATH, models_page, openapi, wants_page
from .problems import TWO_CREDENTIALS, Problem, ProblemType
from .servers import ServerQueries
from .telemetry.meter import Meter

_CREDENTIALS = {b"authorization", b"x-api-key", b"x-domino-api-key"}
_PLAIN = {"content-type": "text/plain"}
log = logging.getLogger(__name__)


def make_app(servers: ServerQueries, ready: Callable[[], str], meter: Meter) -> ASGIApp:
    """Return the application. `ready` returns why the proxy is not ready, or an empty string. `meter` counts problems.
    The scope of each request has its `request_id`, and its `caller` (`http.body.Caller`)."""
    app = FastAPI(title="Tidegate inference proxy", redirect_slashes=False, openapi_url=None)

    async def respond(request: Request, error: Exception) -> Response:
        request_id: str = request.scope["request_id"].decode()
        problem = _problem(request, request_id, error)
        meter.problem(problem)
        headers = {name.decode(): value.decode() for name, value in problem.headers()}
        path = _below_root(request)
        if problem.reason == "unknown-url":  # a client expects its own protocol, also below a wrong address
            path = _root_lacking(path) + path
        media_type, body = problem_body(path, problem, request_id)
        return Response(body, problem.type.status, headers, media_type)

    for error in (Problem, HTTPException, Exception):
        app.add_exception_handler(error, respond)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the proxy runs."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Whether the proxy takes requests."""
        if why := ready():
            raise Problem(ProblemType.BUSY, why, 1.0, reason="stopping")
        return {"status": "ready"}

    @app.get("/whoami")
    async def whoami(request: Request) -> Response:
        """Name, groups and source of the caller."""
        return await servers.whoami(_credential(request))

    async def count_for_caller(request: Request) -> None:
        """Count a possibly long response as its caller's, because little memory is for unauthenticated callers."""
        identity = await servers.identify(_credential(request))
        request.scope["caller"].set_principal(identity.in_flight)

    async def whereabouts(request: Request) -> Response:
        model = _model(request)
        if wants_page(request):
            return models_page()
        await count_for_caller(request)
        return await servers.whereabouts(*_query(request), model)

    @app.get(OPENAPI_PATH)
    async def document() -> Response:
        """The addresses, as OpenAPI."""
        return openapi()

    async def live(request: Request) -> Response:
        await servers.live(*_query(request))
        return Response(headers=_PLAIN)

    async def is_ready(request: Request) -> Response:
        return Response(status_code=200 if await servers.is_ready(*_query(request)) else 400, headers=_PLAIN)

    async def metadata(request: Request) -> Response:
        return await servers.metadata(*_query(request))

    async def openai_models(request: Request) -> Response:
        model = _model(request)
        await count_for_caller(request)
        return await servers.openai_models(*_query(request), model)

    for prefix in ("", "/servers/{server}"):
        for path in ("/v1/models", "/v1/models/{model:path}"):
            app.add_api_route(prefix + path, openai_models, methods=["GET"])
        app.add_api_route(f"{prefix}/v2/health/live", live, methods=["GET"])
        app.add_api_route(f"{prefix}/v2/health/ready", is_ready, methods=["GET"])
        for path in (WHEREABOUTS_PATH, f"{WHEREABOUTS_PATH}/", f"{WHEREABOUTS_PATH}/{{model:path}}"):
            app.add_api_route(prefix + path, whereabouts, methods=["GET"])
        app.add_api_route(f"{prefix}/v2", metadata, methods=["GET"])
    return app


def _model(request: Request) -> str | None:
    """Return the model in the address, or None for all. Names can have slashes. Raises Problem."""
    model: str | None = request.path_params.get("model")
    if model is not None and not is_served_name(model):
        raise HTTPException(404)
    return model


def _below_root(request: Request) -> str:
    """Return the path without the one below which the proxy is exposed."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope["root_path"])


def _root_lacking(path: str) -> str:
    """Return the root that would make a path a call. Empty if there is none."""
    return next((kind.root for kind in KINDS.values() if kind.parse_path(kind.root + path)), "")


def _credential(request: Request) -> bytes:
    found = [(name, value) for name, value in request.headers.raw if name in _CREDENTIALS]
    if len(found) > 1:
        raise Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
    name, value = found[0] if found else (b"authorization", b"")
    return value if name == b"authorization" else name + b" " + value


def _query(request: Request) -> tuple[bytes, str | None]:
    """Return the caller's credential, and the server in the address, or None for all."""
    return _credential(request), request.path_params.get("server")


def _problem(request: Request, request_id: str, error: Exception) -> Problem:
    """Return the problem for an exception."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException) and error.status_code == 405:
        allow = (error.headers or {})["Allow"]
        return Problem(ProblemType.METHOD, f"This address accepts only {allow}.", allow=allow)
    if isinstance(error, HTTPException) and error.status_code == 404:
        path = request.url.path[:200]
        why = f"There is no address {path!r}."
        if root := _root_lacking(_below_root(request)):
            why = f"{why} It exists below {root}: does your client's base_url end with {root}?"
        return Problem(ProblemType.UNKNOWN, f"{why} See {request.base_url}{OPENAPI_PATH[1:]}.", reason="unknown-url")
    log.error("request %s failed unexpectedly", request_id, exc_info=error)
    return Problem(ProblemType.INTERNAL, "Internal error. Details are in the proxy's log under this request ID.")
