"""A request that the proxy answers itself, by its ASGI application, which reads no bodies and answers in one piece."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message

from ..access.web_client import SENDER
from ..headers import LAST_DIGITS, is_request_id, new_request_id
from ..problems import Problem, ProblemType
from ..targets import LONGEST, origin_form, without_path
from .answers import STATUS_LINES, problem_answer
from .body import MOST_DRAINED, Caller
from .head import spoken_version

log = logging.getLogger(__name__)


def scope_of(
    url: bytes,
    headers: list[tuple[bytes, bytes]],
    method: str,
    http_version: str,
    transport: asyncio.Transport,
    root_path: str = "",
) -> dict[str, Any]:
    """Return a request as ASGI has it; `root_path` is what was taken away from its address.

    Raises httptools.HttpParserError, UnicodeDecodeError for what is no address.
    """
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    server, client = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": http_version,
        "server": server[:2] if server else None,
        "client": client[:2] if client else None,
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "method": method,
        "root_path": root_path,
        "path": root_path + (unquote(path) if "%" in path else path),
        "raw_path": root_path.encode() + parsed.path,
        "query_string": parsed.query or b"",
        "headers": [(name.lower(), value) for name, value in headers],
    }


def request_of(
    caller: Caller,
    app: ASGIApp,
    parser: httptools.HttpRequestParser,
    whole_url: bytes,
    headers: list[tuple[bytes, bytes]],
    path: bytes,
) -> tuple["AppRequest", int, bool]:
    """Return a request of the application, its body's length, and whether that is chunked.

    The application reads no bodies: a long one ends the connection. Below `path` it answers as it does without it.
    Raises httptools.HttpParserError, UnicodeDecodeError for what is no address.
    """
    whole, method = origin_form(whole_url), parser.get_method()
    url = without_path(whole, path)
    root = "" if url == whole else path.decode()
    if url[:1] != b"/":
        raise httptools.HttpParserInvalidURLError(url[:LONGEST])
    version = spoken_version(parser)
    scope = scope_of(url, headers, method.decode(), version, caller.transport, root)
    said = dict(scope["headers"])
    length, chunked = int(said.get(b"content-length", b"0")[LAST_DIGITS]), b"transfer-encoding" in said
    expects_continue = said.get(b"expect", b"").lower() == b"100-continue"
    has_long_body = chunked or expects_continue or length > MOST_DRAINED
    keep_alive = version != "1.0" and parser.should_keep_alive() and not has_long_body
    return AppRequest(caller, app, scope, keep_alive), length, chunked


@dataclass(slots=True, eq=False)
class Body:
    """A body that is dropped as it comes."""

    complete: bool = False
    is_held: bool = False  # Whether no more of it is read for now.

    @property
    def left(self) -> int:
        """Bytes of it that are still to come, as far as that is known."""
        return 0

    def release(self) -> None:
        """Hold nothing of it any more."""


class AppRequest:
    """A request answered by the ASGI app; its body is discarded, and its request id is in every answer."""

    def __init__(self, caller: Caller, app: ASGIApp, scope: dict[str, Any], keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.response_complete = False
        self.body = Body()
        own = dict(scope["headers"]).get(b"x-request-id", b"")
        self._request_id = scope["request_id"] = own if is_request_id(own) else new_request_id()
        scope["caller"] = caller
        self._caller = caller
        self._app = app
        self._scope = scope
        self._start: Message = {}
        self._body = b""
        self._is_whole = False

    def start(self) -> None:
        """Start the task in which the app answers."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        SENDER.set(self._caller)
        try:
            await self._app(self._scope, _nothing, self._take)
            if not self._is_whole:
                raise RuntimeError("the application's answer breaks off")
        except Exception:  # an application that answers the error itself raises it again
            if not self._is_whole:  # nothing was written yet: a part would pass for the whole
                log.exception("%s met a defect", self._scope["path"])
                problem = Problem(ProblemType.INTERNAL, "It is in the proxy's log.")
                self._end(*problem_answer(problem, self._request_id, keep_alive=self.keep_alive))
                return
        head = [STATUS_LINES[self._start["status"]]]
        for name, value in self._start["headers"]:
            head += (name, b": ", value, b"\r\n")
        head += (b"x-request-id: ", self._request_id)
        head.append(b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n")
        self._end(b"".join(head), b"" if self._scope["method"] == "HEAD" else self._body)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._body += message.get("body", b"")
            self._is_whole = not message.get("more_body", False)

    def _end(self, head: bytes, body: bytes) -> None:
        self._caller.write_out(head + body)
        self._scope = {}  # its connection knows it until the next request
        self.response_complete = True
        self._caller.ended(self)

    def take_body(self, data: bytes) -> None:
        """Take a part of the request's body."""

    def end_body(self) -> None:
        """Note that the body is whole."""
        self.body.complete = True

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""

    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""

    def abandon(self) -> None:
        """End it: the caller has left."""
        self.response_complete = True
        self._task.cancel()


async def _nothing() -> Message:
    """Stand for the body, so that a defect cannot make one be read: nothing here would bound it."""
    return {"type": "http.request", "body": b"", "more_body": False}
