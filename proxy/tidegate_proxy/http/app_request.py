"""A request that the proxy answers itself, by its ASGI application, which reads no bodies and answers in one piece."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message

from ..problems import Kind, Problem
from ..request_ids import new_request_id
from .answers import STATUS_LINES, problem_answer
from .caller import Caller

log = logging.getLogger(__name__)


def scope_of(
    url: bytes, headers: list[tuple[bytes, bytes]], method: str, http_version: str, transport: asyncio.Transport
) -> dict[str, Any]:
    """Return a request as ASGI has it; raises httptools.HttpParserError, UnicodeDecodeError for what is no address."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path
    path = raw_path.decode("ascii")
    server, client = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": http_version,
        "server": server[:2] if server else None,
        "client": client[:2] if client else None,
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "method": method,
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": parsed.query or b"",
        "headers": [(name.lower(), value) for name, value in headers],
    }


@dataclass
class DroppedBody:
    """A body of which nothing is kept."""

    complete: bool = False
    is_held: bool = False


class AppRequest:
    """One such request; its body is dropped."""

    response_complete = False

    def __init__(self, caller: Caller, app: ASGIApp, scope: dict[str, Any], keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.body = DroppedBody()
        self._caller = caller
        self._app = app
        self._scope = scope
        self._start: Message = {}
        self._body = b""
        self._refusal: Problem | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Have it answered."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._app(self._scope, _nothing, self._take)
        except Exception:  # the application has told of it, if it could
            if not self._start:
                log.exception("%s met a defect", self._scope["path"])
                self._tell(Problem(Kind.INTERNAL, "It is in the proxy's log."))
        if not self.response_complete:
            self._write()

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._body += message.get("body", b"")

    def _write(self) -> None:
        head = [STATUS_LINES[self._start["status"]]]
        for name, value in self._start["headers"]:
            head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        body = b"" if self._scope["method"] == "HEAD" else self._body
        self._caller.transport.write(b"".join((*head, body)))
        self._end()

    def _tell(self, problem: Problem) -> None:
        self._caller.transport.write(b"".join(problem_answer(problem, new_request_id(), keep_alive=self.keep_alive)))
        self._end()

    def _end(self) -> None:
        self.response_complete = True
        self._caller.ended(self)

    def take_body(self, data: bytes) -> None:
        """Drop a part of the body."""

    def end_body(self) -> None:
        """Learn that the request is whole."""
        self.body.complete = True

    def flush_request(self) -> None:
        """Do nothing: nothing is sent on."""

    def receiving_paused(self, paused: bool) -> None:
        """Do nothing: its answer comes in one piece."""

    def refuse(self, problem: Problem) -> None:
        """Do nothing: it is answered, and its connection ends after that."""

    def abandon(self) -> None:
        """End it: the caller has left."""
        if not self.response_complete:
            self.response_complete = True
            if self._task is not None:
                self._task.cancel()


async def _nothing() -> Message:
    """Stand for the body, so that a defect cannot make one be read: nothing here would bound it."""
    return {"type": "http.request", "body": b"", "more_body": False}
