"""Addresses that are not hot: pages, health, and questions about servers rather than models; a FastAPI application.

Nothing here reads a body: calls of models, which have bodies, never come here.
"""

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
from .servers import ServerQueries, as_it_is
from .telemetry.meter import Meter

_CREDENTIALS = {b"authorization", b"x-api-key", b"x-domino-api-key"}
_PLAIN = {"content-type": "text/plain"}
log = logging.getLogger(__name__)


def make_app(servers: ServerQueries, ready: Callable[[], str], meter: Meter) -> ASGIApp:
    """Return the application; `ready` says why the proxy is not, or nothing; `meter` counts its problems.

    Each request's scope has its `request_id`, and its `caller` (`http.body.Caller`).
    """
    app = FastAPI(title="Tidegate inference proxy", redirect_slashes=False, openapi_url=None)

    async def tell(request: Request, error: Exception) -> Response:
        request_id: str = request.scope["request_id"].decode()
        problem = _problem(request, request_id, error)
        meter.problem(problem)
        headers = {name.decode(): value.decode() for name, value in problem.headers()}
        path = _below_root(request)
        if problem.reason == "unknown-url":  # a client reads its own protocol, also where that is below another address
            path = _root_lacking(path) + path
        media_type, body = problem_body(path, problem, request_id)
        return Response(body, problem.type.status, headers, media_type)

    for error in (Problem, HTTPException, Exception):
        app.add_exception_handler(error, tell)

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
        """Name, groups and source by which the proxy knows the caller."""
        return await servers.whoami(_credential(request))

    async def count_for_caller(request: Request) -> None:
        """Have an answer that may be long count as its caller's: a stranger may not leave so much untaken."""
        identity = await servers.identify(_credential(request))
        if (caller := request.scope["caller"]).is_unknown:
            caller.set_principal(identity.in_flight)

    async def whereabouts(request: Request) -> Response:
        model = _model(request)
        if wants_page(request):
            return models_page()
        await count_for_caller(request)
        return await servers.whereabouts(*_asked(request), model)

    @app.get(OPENAPI_PATH)
    async def document() -> Response:
        """The addresses, as OpenAPI."""
        return openapi()

    async def live(request: Request) -> Response:
        await servers.live(*_asked(request))
        return Response(headers=_PLAIN)

    async def is_ready(request: Request) -> Response:
        return Response(status_code=200 if await servers.is_ready(*_asked(request)) else 400, headers=_PLAIN)

    async def metadata(request: Request) -> Response:
        return as_it_is(await servers.metadata(*_asked(request)))

    async def openai_models(request: Request) -> Response:
        model = _model(request)
        await count_for_caller(request)
        return await servers.openai_models(*_asked(request), model)

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
    """Return the model that is asked about; None: all. Names that clients have may have slashes; raises Problem."""
    model: str | None = request.path_params.get("model")
    if model is not None and not is_served_name(model):
        raise HTTPException(404)
    return model


def _below_root(request: Request) -> str:
    """Return the path that is asked for, without the one below which everything is."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope["root_path"])


def _root_lacking(path: str) -> str:
    """Return what has to stand before a path for it to be a call; nothing where that would be none either."""
    return next((kind.root for kind in KINDS.values() if kind.parse_path(kind.root + path)), "")


def _credential(request: Request) -> bytes:
    said = [(name, value) for name, value in request.headers.raw if name in _CREDENTIALS]
    if len(said) > 1:
        raise Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
    name, value = said[0] if said else (b"authorization", b"")
    return value if name == b"authorization" else name + b" " + value


def _asked(request: Request) -> tuple[bytes, str | None]:
    """Return the caller's credential, and the server that is asked about; None: all."""
    return _credential(request), request.path_params.get("server")


def _problem(request: Request, request_id: str, error: Exception) -> Problem:
    """Return the problem that an exception is."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException) and error.status_code == 405:
        allow = (error.headers or {})["Allow"]
        return Problem(ProblemType.METHOD, f"This address takes {allow}.", allow=allow)
    if isinstance(error, HTTPException) and error.status_code == 404:
        path = request.url.path[:200]
        why = f"Nothing is called {path!r} here."
        if root := _root_lacking(_below_root(request)):
            why = f"{why} There is one below {root}: does your client's address, its base_url, end in it?"
        return Problem(ProblemType.UNKNOWN, f"{why} See {request.base_url}{OPENAPI_PATH[1:]}.", reason="unknown-url")
    log.error("request %s met a defect", request_id, exc_info=error)
    return Problem(ProblemType.INTERNAL, "It is in the log, under this request's id.")
