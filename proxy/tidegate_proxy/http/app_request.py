"""A request that the proxy's ASGI application answers. The application reads no bodies and responds in one piece."""

import asyncio
import logging
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message

from ..access.web_client import SENDER
from ..headers import LAST_DIGITS, is_request_id, new_request_id
from ..problems import Problem, ProblemType
from ..shared_state import SharedState
from ..targets import LONGEST, origin_form, without_path
from .answers import STATUS_LINES, problem_answer
from .body import MOST_DRAINED, Caller, RequestBody
from .head import spoken_version

log = logging.getLogger(__name__)


def request_of(
    caller: Caller,
    shared: SharedState,
    app: ASGIApp,
    parser: httptools.HttpRequestParser,
    whole_url: bytes,
    headers: list[tuple[bytes, bytes]],
    path: bytes,
) -> tuple["AppRequest", int, bool]:
    """Return a request for the application, its body's length, and whether that is chunked. A long body ends the
    connection, because the application reads none. Raises httptools.HttpParserError or UnicodeDecodeError for an
    invalid URL."""
    whole, transport = origin_form(whole_url), caller.transport
    url = without_path(whole, path)
    root = "" if url == whole else path.decode()
    if url[:1] != b"/":
        raise httptools.HttpParserInvalidURLError(url[:LONGEST])
    version, parsed = spoken_version(parser), httptools.parse_url(url)
    decoded = parsed.path.decode("ascii")
    server, client = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    fields = {name.lower(): value for name, value in headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "server": server[:2] if server else None,
        "client": client[:2] if client else None,
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "method": parser.get_method().decode(),
        "root_path": root,
        "path": root + (unquote(decoded) if "%" in decoded else decoded),
        "raw_path": root.encode() + parsed.path,
        "query_string": parsed.query or b"",
        "headers": [(name.lower(), value) for name, value in headers],
    }
    length, chunked = int(fields.get(b"content-length", b"0")[LAST_DIGITS]), b"transfer-encoding" in fields
    expects_continue = fields.get(b"expect", b"").lower() == b"100-continue"
    has_long_body = chunked or expects_continue or length > MOST_DRAINED
    keep_alive = version != "1.0" and parser.should_keep_alive() and not has_long_body
    return AppRequest(caller, shared, app, scope, keep_alive), length, chunked


class AppRequest:
    """A request that the ASGI application answers. Discards the body, and adds the request ID to every response."""

    def __init__(
        self, caller: Caller, shared: SharedState, app: ASGIApp, scope: dict[str, Any], keep_alive: bool
    ) -> None:
        self.keep_alive = keep_alive
        self.response_complete = False
        self.body = RequestBody(None, False, shared, caller)  # It stays empty.
        own = dict(scope["headers"]).get(b"x-request-id", b"")
        self._request_id = scope["request_id"] = own if is_request_id(own) else new_request_id()
        scope["caller"] = caller
        self._caller = caller
        self._app = app
        self._scope = scope
        self._start: Message = {}
        self._body = b""
        self._is_whole = False
        self._problem: Problem | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._problem is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            self._end(*problem_answer(self._problem, self._request_id, keep_alive=self.keep_alive))

    async def _run(self) -> None:
        SENDER.set(self._caller)
        try:
            try:
                await self._app(self._scope, _nothing, self._take)
            except Exception:  # Starlette re-raises an error after it has sent the response for it
                if not self._is_whole:
                    raise
            answer = self._head(), self._body
        except Exception:  # Nothing was written yet: a partial response would look like a complete one.
            log.exception("%s failed with an internal error", self._scope["path"])
            problem = Problem(ProblemType.INTERNAL, "Internal error. Details are in the proxy's log.")
            answer = problem_answer(problem, self._request_id, keep_alive=self.keep_alive)
        self._end(*answer)

    def _head(self) -> bytes:
        if not self._is_whole:
            raise RuntimeError("the application did not complete its response")
        head = [STATUS_LINES[self._start["status"]]]
        for name, value in self._start["headers"]:
            head += (name, b": ", value, b"\r\n")
        head += (b"x-request-id: ", self._request_id)
        head.append(b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n")
        return b"".join(head)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._body += message.get("body", b"")
            self._is_whole = not message.get("more_body", False)

    def _end(self, head: bytes, body: bytes) -> None:
        self._caller.write_out(head if self._scope["method"] == "HEAD" else head + body)
        self._scope, self._body = {}, b""  # the connection keeps this request until the next one: free the memory
        self.response_complete = True
        self._caller.ended(self)

    def take_body(self, data: bytes) -> None:
        """Drop a part of the body."""

    def end_body(self) -> None:
        self.body.complete = True

    def flush_request(self) -> None:
        """Send the buffered data: there is none."""

    def receiving_paused(self, paused: bool) -> None:
        """Ignore that the caller reads slowly: the response is sent in one piece."""

    def refuse(self, problem: Problem) -> None:
        """Respond to a defect when it is this request's turn. Ignore an invalid body: the application reads none."""
        if problem.type is not ProblemType.INTERNAL or self.response_complete:
            return
        self._problem = problem
        if self._caller.is_active(self):
            self.abandon()
            self._end(*problem_answer(problem, self._request_id, keep_alive=self.keep_alive))

    def abandon(self) -> None:
        self.response_complete = True
        if self._task is not None:
            self._task.cancel()


async def _nothing() -> Message:
    """Return an empty body. The application must never read the real one, because nothing here limits its size."""
    return {"type": "http.request", "body": b"", "more_body": False}
