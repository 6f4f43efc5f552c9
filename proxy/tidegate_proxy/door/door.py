"""A caller's HTTP connection: uvicorn's protocol, with a way of its own for calls of models."""

import asyncio
from time import monotonic
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..problems import CONTENT_TYPE, Kind, Problem
from .exchange import STATUS_LINES, Exchange
from .hall import Hall, is_request_id, new_request_id
from .head import Head, KnownHeads
from .paths import Target, understand
from .predict import PREDICT, Predict

MOST_HEAD_BYTES = 64 * 1024
"""Bytes of a request's first line and headers."""
MOST_KNOWN_TARGETS = 20_000

(_PASS, _DROP, _AUTHORIZATION, _KEY, _LENGTH, _ENCODING, _EXPECT, _REQUEST_ID, _SECONDS, _STICKY, _HOST) = range(11)
LINGER_SECONDS = 1.0
SECONDS_HEADER = b"request-timeout"
"""Seconds that the caller waits for an answer; a shorter time than the proxy's own counts."""
STICKY_HEADER = b"tidegate-sticky"
"""Requests with the same value get the same version of a model."""
_KINDS = {
    b"authorization": _AUTHORIZATION,
    b"x-api-key": _KEY,
    b"x-domino-api-key": _KEY,
    b"content-length": _LENGTH,
    b"transfer-encoding": _ENCODING,
    b"expect": _EXPECT,
    b"x-request-id": _REQUEST_ID,
    SECONDS_HEADER: _SECONDS,
    STICKY_HEADER: _STICKY,
    # Of this connection alone, or nobody's business but the proxy's.
    b"connection": _DROP,
    b"keep-alive": _DROP,
    b"proxy-connection": _DROP,
    b"proxy-authorization": _DROP,
    b"te": _DROP,
    b"trailer": _DROP,
    b"upgrade": _DROP,
    b"host": _HOST,
    b"cookie": _DROP,
    # Triton's restricted protocols are opened by this header: no caller's ever reaches it.
    b"tidegate-control": _DROP,
}
_KINDS |= {name.title(): kind for name, kind in _KINDS.items()}


class Door(HttpToolsProtocol):
    """Calls of models are exchanges; everything else goes to the application as under uvicorn alone."""

    def __init__(
        self,
        hall: Hall,
        targets: dict[bytes, Target | None],
        known: KnownHeads,
        config: Config,
        state: ServerState,
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        # Strict again: what follows a request that ends its connection is none of ours.
        self.parser = httptools.HttpRequestParser(self)
        self.hall = hall
        self.active: Exchange | None = None
        self.last_heard = monotonic()
        self.in_head = False
        self._targets = targets
        self._known = known
        self._between = True
        """Whether the parser stands between two requests."""
        self._head: Head | None = None
        """That of the last request in what came last."""
        self._head_bytes = 0
        self._head_began = self.last_heard
        self._long = False
        self._deaf = False
        self._hosts = 0
        self._credentials = 0
        self._strange = False
        self._target: Target | None = None
        self._decided = False
        self._passed: list[bytes] = []
        self._credential = b""
        self._length: int | None = None
        self._chunked = False
        self._expects_continue = False
        self._request_id = b""
        self._seconds = 0.0
        self._sticky: bytes | None = None

    # --- asyncio
    def data_received(self, data: bytes) -> None:
        """Parse what has come, and send on what can be."""
        if self._deaf:
            return
        self.last_heard = monotonic()
        at_rest = self._between and self.active is None and (self.cycle is None or self.cycle.response_complete)
        if at_rest and (found := self._known.find(data)) is not None:
            self._take_whole(*found)
            return
        self._head = None
        self._long = len(data) > MOST_HEAD_BYTES
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(Problem(Kind.MALFORMED, "This is not HTTP/1.1 as RFC 9112 has it."))
            return
        except httptools.HttpParserUpgrade:
            self._refuse(Problem(Kind.MALFORMED, "No other protocol is spoken here: leave out the Upgrade header."))
            return
        if self.in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(_too_long_a_head())
                return
        if self.active is not None:
            self.active.flush_request()
        if at_rest and self._between and self._head is not None:
            self._known.learn(data, self._head)

    def _take_whole(self, head: Head, body: bytes) -> None:
        """Take a request that came in one piece, and whose head is known: the same steps, without the parser."""
        exchange = self._exchange(head)
        self.cycle = cast(RequestResponseCycle, exchange)
        self.active = exchange
        exchange.start()
        if body:
            exchange.take_body(body)
        exchange.end_body()
        exchange.flush_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what the caller waited for."""
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        super().connection_lost(exc)
        for each in waiting:
            if isinstance(each, Exchange):
                each.disconnected = each.response_complete = True
        if self.active is not None:
            self.active.abandon()

    def pause_writing(self) -> None:
        """Hold the answer back: the caller is slow."""
        super().pause_writing()
        if self.active is not None:
            self.active.receiving_paused(True)

    def resume_writing(self) -> None:
        """Let the answer come."""
        super().resume_writing()
        if self.active is not None:
            self.active.receiving_paused(False)

    # --- httptools
    def on_message_begin(self) -> None:
        """Begin a request; what kind it is shows with its path."""
        self._between = False
        self.url = b""
        self.in_head = True
        self._head_began = self.last_heard
        self._head_bytes = 0
        self._decided = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self._decided:
            self._decide()
        if self._target is None:
            super().on_header(name, value)
            return
        kind = _KINDS.get(name)
        if kind is None:
            kind = _KINDS.get(name.lower(), _PASS)
        if kind == _PASS:
            self._passed += (name, b": ", value, b"\r\n")
        elif kind == _LENGTH:
            self._length = int(value)
        elif kind == _HOST:
            self._hosts += 1
        elif kind == _AUTHORIZATION:
            self._credentials += 1
            self._credential = value
        elif kind == _KEY:
            self._credentials += 1
            self._credential = name.lower() + b" " + value
        elif kind == _ENCODING:
            # One encoding, said once: the parser knows of others that end a body otherwise.
            self._strange = self._strange or self._chunked or value.lower() != b"chunked"
            self._chunked = True
        elif kind == _EXPECT:
            self._expects_continue = value.lower() == b"100-continue"
        elif kind == _REQUEST_ID:
            if is_request_id(value):
                self._request_id = value
        elif kind == _SECONDS:
            self._read_seconds(value)
        elif kind == _STICKY:
            self._sticky = value or None

    def on_headers_complete(self) -> None:
        """Begin an exchange, or leave the request to the application."""
        self.in_head = False
        if self._deaf:
            return
        if not self._decided:
            self._decide()
        target = self._target
        if target is None:
            super().on_headers_complete()
            return
        head = self._head = self._understood(target)
        exchange = self._exchange(head)
        before = self.cycle
        self.cycle = cast(RequestResponseCycle, exchange)
        if before is None or before.response_complete:
            self._begin(exchange)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if isinstance(self.cycle, Exchange):
            self.cycle.take_body(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Learn that the request is whole."""
        self._between = True
        if isinstance(self.cycle, Exchange):
            self.cycle.end_body()
        else:
            super().on_message_complete()

    # --- for the hall
    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything here."""
        return not self.in_head and (self.cycle is None or self.cycle.response_complete)

    def end_if_late(self, now: float, idle_seconds: float, head_seconds: float) -> None:
        """End the connection if it stands idle too long, or its request's head takes too long to come."""
        if self.in_head and now - self._head_began > head_seconds:
            self._refuse(Problem(Kind.SLOW, f"A request's head may take {head_seconds:g} s."))
        elif self.is_idle and now - self.last_heard > idle_seconds:
            self.transport.close()

    # --- exchanges
    def exchange_ended(self, exchange: Exchange) -> None:
        """Go on with the next request of this connection."""
        if self.active is exchange:
            self.active = None
        if not exchange.keep_alive and not self.transport.is_closing():
            self._end(linger=not exchange.body_complete)
        self.on_response_complete()

    def _end(self, *, linger: bool) -> None:
        """End the connection; a little later while its caller still sends, or the answer is lost (RFC 9112, 9.6)."""
        self._deaf = True
        if linger:
            self.flow.resume_reading()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def hold(self, paused: bool) -> None:
        """Take no more from the caller for now, or go on."""
        if paused:
            self.flow.pause_reading()
        elif not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Begin the next request that waits; whoever is idle too long is found by the hall's sweep, without a timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self.loop.call_soon(self._start_asgi_task, cycle, app)
        else:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not isinstance(cycle, Exchange):
            super()._start_asgi_task(cycle, app)
        elif not cycle.response_complete:
            self._begin(cycle)
            if self.active is not None:
                self.active.flush_request()

    def _begin(self, exchange: Exchange) -> None:
        self.active = exchange
        exchange.start()

    def _exchange(self, head: Head) -> Exchange:
        kind = Predict if head.target is PREDICT else Exchange
        return kind(self, head, self.last_heard)

    def _understood(self, target: Target) -> Head:
        http_11 = self.parser.get_http_version() == "1.1"
        refusal = None
        if self._hosts != 1 and http_11:
            refusal = "A request has one Host header (RFC 9112, 3.2)."
        elif self._strange:
            refusal = "A body has a Content-Length, or is sent in chunks, and nothing else."
        elif self._credentials > 1:
            refusal = "A request says once who sends it: leave one credential out."
        problem = Problem(Kind.MALFORMED, refusal) if refusal else None
        if self._long and sum(map(len, self._passed)) > MOST_HEAD_BYTES:
            problem = _too_long_a_head()
        return Head(
            target=target,
            method=self.parser.get_method(),
            passed=b"".join(self._passed),
            credential=self._credential,
            length=self._length,
            chunked=self._chunked,
            expects_continue=self._expects_continue,
            sticky=self._sticky,
            request_id=self._request_id,
            seconds=self._seconds,
            http_11=http_11,
            keep_alive=http_11 and self.parser.should_keep_alive(),
            refusal=problem,
        )

    def _decide(self) -> None:
        self._decided = True
        url = self.url
        try:
            target = self._targets[url]
        except KeyError:
            target = PREDICT if url == b"/predict" else understand(url)
            if len(self._targets) < MOST_KNOWN_TARGETS:
                self._targets[url] = target
        self._target = target
        if target is None:
            super().on_message_begin()
            self.url = url
            return
        self._passed = []
        self._credential = b""
        self._length = None
        self._chunked = False
        self._expects_continue = False
        self._hosts = self._credentials = 0
        self._strange = False
        self._request_id = b""
        self._seconds = float(self.hall.settings.request_timeout_seconds)
        self._sticky = None

    def _read_seconds(self, value: bytes) -> None:
        try:
            seconds = float(value)
        except ValueError:
            return
        if seconds > 0:
            self._seconds = min(self._seconds, seconds)

    def _refuse(self, problem: Problem) -> None:
        """Answer what is no request, and hear no more of this connection."""
        if self._deaf or self.transport.is_closing():
            return
        last = self.cycle
        if last is not None and not last.response_complete:
            # The requests before it are answered; then the connection ends.
            self._deaf = True
            last.keep_alive = False
            if isinstance(last, Exchange) and not last.body_complete:
                last.refuse(problem)
            elif self.active is not None:
                self.active.flush_request()
            return
        self.hall.meter.problems[problem.kind.word] += 1
        request_id = new_request_id()
        body = problem.body(request_id.decode())
        self.transport.write(
            STATUS_LINES[problem.kind.status]
            + b"content-type: %b\r\nx-request-id: %b\r\n" % (CONTENT_TYPE.encode(), request_id)
            + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            + body
        )
        self._end(linger=True)


def _too_long_a_head() -> Problem:
    return Problem(Kind.HEADERS, f"A request's headers may have {MOST_HEAD_BYTES} bytes.")
