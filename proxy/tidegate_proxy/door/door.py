"""A caller's HTTP connection: uvicorn's protocol, with a way of its own for calls of models."""

import asyncio
from time import monotonic
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from ..paths import ANYTHING, LONGEST, PREDICT, Target, origin_form
from ..problems import Kind, Problem
from ..request_ids import new_request_id
from ..shared_state import SharedState
from .exchange import Exchange
from .head import END, Head, KnownHeads
from .predict import Predict
from .reading import MOST_HEAD_BYTES, Reader, too_long_a_head
from .relay import MOST_DRAINED, answer_of
from .rest import Rest, framing

LINGER_SECONDS = 1.0
CLOSE_SECONDS = 5.0
"""Seconds in which a caller takes some of what is left for it, or its connection is cut."""


class _AppTransport:
    """What uvicorn writes an application's answer to: the connection, whose end is the door's affair."""

    __slots__ = ("_cycle", "_door", "is_closing", "write")

    def __init__(self, door: "Door", cycle: RequestResponseCycle) -> None:
        self._door = door
        self._cycle = cycle
        self.write = door.transport.write
        self.is_closing = door.transport.is_closing

    def close(self) -> None:
        """End the connection, but not while its caller still sends."""
        self._door.end(linger=self._cycle.more_body)


class Door(Reader):
    """Calls of models are exchanges; everything else goes to the application as under uvicorn alone."""

    def __init__(
        self,
        shared: SharedState,
        targets: dict[bytes, Target | None],
        known: KnownHeads,
        config: Config,
        state: ServerState,
    ) -> None:
        super().__init__(shared, targets, config, state)
        # Strict again: what follows a request that ends its connection is none of ours.
        self.parser = httptools.HttpRequestParser(self)
        self.active: Exchange | None = None
        self.last_heard = monotonic()
        self.in_head = False
        self._known = known
        self._between = True
        """Whether the parser stands between two requests."""
        self._framing = b""
        """A head with the same body as that of the request which wishes for another protocol, if this one does."""
        self._head: Head | None = None
        """That of the last request in what came last."""
        self._head_bytes = 0
        self._head_began = self.last_heard
        self._began = False
        """Whether the last request began in what came last."""
        self._body_bytes = 0
        """Bytes of the last body in what came last."""
        self._put_off = False
        """Whether the next request waits until its answer can be written."""
        self._deaf = False
        self._is_lost = False

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
        self._began = False
        self._body_bytes = 0
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            self._failed(error)
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(Problem(Kind.MALFORMED, "This is not HTTP/1.1 as RFC 9112 has it."))
            return
        if self.in_head:
            # What stands before it in the same data is no part of it: other requests, with their bodies.
            before = data.rfind(END) + len(END) + self._body_bytes if self._began else 0
            self._head_bytes += max(0, len(data) - before)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(too_long_a_head())
                return
        elif not self._between and not self._began:
            # What is no part of a body that is sent in chunks: extensions and trailers, of which the parser keeps all.
            self._head_bytes = 0 if self._body_bytes else self._head_bytes + len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(too_long_a_head())
                return
        if self.active is not None:
            self.active.flush_request()
        if at_rest and self._between and self._head is not None:
            self._known.learn(data, self._head)

    def _parse(self, data: bytes) -> None:
        """Parse; a wish for another protocol is passed over (RFC 9110, 7.8): many clients say `Upgrade: h2c` first.

        The parser takes such a request for one without a body, and what follows for the other protocol.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as error:
                head, self._framing = self._framing, b""
                if not head:  # CONNECT
                    raise
                data = data[error.args[0] :]
                self.parser = httptools.HttpRequestParser(Rest(self))
                self.parser.feed_data(head)
            else:
                return

    def _take_whole(self, head: Head, body: bytes) -> None:
        """Take a request that came in one piece, and whose head is known: the same steps, without the parser."""
        exchange = self._exchange(head)
        self.cycle = cast(RequestResponseCycle, exchange)
        self.active = exchange
        exchange.start()
        try:
            if body:
                exchange.take_body(body)
            exchange.end_body()
            exchange.flush_request()
        except Exception:
            exchange.met_defect()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what the caller waited for."""
        self._is_lost = True
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        super().connection_lost(exc)
        for each in waiting:
            if isinstance(each, Exchange):
                each.disconnected = each.response_complete = True
        if self.active is not None:
            self.active.abandon()

    def pause_writing(self) -> None:
        """Hold the answer back, and hear no more: the caller is slow."""
        super().pause_writing()
        self.listen()
        if self.active is not None:
            self.active.receiving_paused(True)

    def resume_writing(self) -> None:
        """Let the answer come."""
        super().resume_writing()
        if self.active is not None:
            self.active.receiving_paused(False)
        elif self._put_off:
            self._next()
        self.listen()

    # --- httptools
    def on_message_begin(self) -> None:
        """Begin a request; what kind it is shows with its path."""
        self._between = False
        self._began = True
        self.url = b""
        self.in_head = True
        self._head_began = self.last_heard
        self._head_bytes = 0
        self._decided = False

    def on_headers_complete(self) -> None:
        """Begin an exchange, or leave the request to the application."""
        self.in_head = False
        self._body_bytes = 0
        if self._deaf:
            return
        if not self._decided:
            self._decide()
        target = self._target
        wishes = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if target is None:
            if wishes:
                said = dict(self.headers)
                length, chunked = int(said.get(b"content-length", b"0")), b"transfer-encoding" in said
                self._framing = framing(length, chunked=chunked, keep_alive=self.parser.should_keep_alive())
            self._to_application()
            return
        head = self._head = self._understood(target)
        if wishes:
            self._framing = framing(head.length or 0, chunked=head.chunked, keep_alive=head.keep_alive)
        exchange = self._exchange(head)
        before = self.cycle
        self.cycle = cast(RequestResponseCycle, exchange)
        is_next = before is None or before.response_complete
        if is_next and not self.flow.write_paused:
            self._begin(exchange)
        else:
            self._put_off = is_next
            self.pipeline.appendleft((self.cycle, self.app))
            self.listen()

    def _to_application(self) -> None:
        """Leave a request to the application, which reads no bodies: a long one ends the connection."""
        said = dict(self.headers)
        length = said.get(b"content-length", b"0")
        self.url = origin_form(self.url)
        if self.url == b"*" and self.parser.get_method() == b"OPTIONS":
            self.url = ANYTHING
        if self.url[:1] != b"/":
            raise httptools.HttpParserInvalidURLError(self.url[:LONGEST])
        super().on_headers_complete()
        self.scope["headers"] = self.headers.copy()  # trailers are no headers (RFC 9110, 6.5.1)
        self.cycle.transport = cast(asyncio.Transport, _AppTransport(self, self.cycle))
        if b"transfer-encoding" in said or self.expect_100_continue or int(length) > MOST_DRAINED:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        if isinstance(self.cycle, Exchange):
            self.cycle.take_body(body)

    def on_message_complete(self) -> None:
        """Learn that the request is whole."""
        if self._framing:
            return  # its body, if it has one, is still to be parsed
        self._between = True
        if isinstance(self.cycle, Exchange):
            self.cycle.end_body()
        else:
            super().on_message_complete()

    # --- for the shared
    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything here."""
        return not self.in_head and (self.cycle is None or self.cycle.response_complete)

    def end_if_late(self, now: float, idle_seconds: float, head_seconds: float) -> None:
        """End the connection if it stands idle too long, or its request's head takes too long to come."""
        if self.in_head and now - self._head_began > head_seconds:
            self._refuse(Problem(Kind.SLOW, f"A request's head may take {head_seconds:g} s."))
        elif self.is_idle and now - self.last_heard > idle_seconds:
            self.close()

    # --- exchanges
    def exchange_ended(self, exchange: Exchange) -> None:
        """Go on with the next request of this connection."""
        if self.active is exchange:
            self.active = None
        if not exchange.keep_alive and not self.transport.is_closing():
            self.end(linger=not exchange.body_complete)
        self.on_response_complete()

    def end(self, *, linger: bool) -> None:
        """End the connection; a little later while its caller still sends, or the answer is lost (RFC 9112, 9.6)."""
        self._deaf = True
        if linger:
            self.flow.resume_reading()
            self.loop.call_later(LINGER_SECONDS, self.close)
        else:
            self.close()

    def close(self) -> None:
        """End the connection once what is left for the caller is written; cut it when the caller takes none of it."""
        self.transport.close()
        if left := self.unsent:
            self.loop.call_later(CLOSE_SECONDS, self._cut, left)

    def _cut(self, before: int) -> None:
        left = self.unsent
        if left >= before:
            self.transport.abort()
        elif left:
            self.loop.call_later(CLOSE_SECONDS, self._cut, left)

    @property
    def unsent(self) -> int:
        """Bytes of answers that the caller has not taken yet."""
        return 0 if self._is_lost else self.transport.get_write_buffer_size()

    def listen(self) -> None:
        """Hear the caller, unless there is more of it or for it here than is moved on."""
        cycle = self.cycle
        held = isinstance(cycle, Exchange) and cycle.paused and not cycle.response_complete
        if (held or self.pipeline or self.flow.write_paused) and not self._deaf:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Begin the next request that waits; whoever is idle too long is found by the hall's sweep, without a timer."""
        self.server_state.total_requests += 1
        if (self.pipeline or self.flow.read_paused) and not self.transport.is_closing():
            if self.pipeline and not self.flow.write_paused:
                self._next()
            self._put_off = bool(self.pipeline) and self.flow.write_paused
            self.listen()

    def _next(self) -> None:
        self._put_off = False
        cycle, app = self.pipeline.pop()
        self.loop.call_soon(self._start_asgi_task, cycle, app)

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

    def _failed(self, error: httptools.HttpParserCallbackError) -> None:
        """Answer a request that could not be taken in: what is no address is the caller's fault, all else is not."""
        why = error.__context__
        if isinstance(why, httptools.HttpParserError | UnicodeDecodeError):
            self._refuse(Problem(Kind.MALFORMED, "This is not HTTP/1.1 as RFC 9112 has it."))
            return
        self.logger.error("a request could not be taken in", exc_info=why or error)
        self._refuse(Problem(Kind.INTERNAL, "It is in the proxy's log."))

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
        self.shared.meter.problems[problem.kind.word] += 1
        self.transport.write(b"".join(answer_of(problem, new_request_id(), keep_alive=False)))
        self.end(linger=True)
