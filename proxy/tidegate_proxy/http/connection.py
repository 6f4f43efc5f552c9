"""A caller's HTTP/1.1 connection: httptools parses what comes, requests are answered one after another, in order."""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, cast

import httptools
from starlette.types import ASGIApp

from ..concurrency import FIRST_BYTES
from ..guests import MOST_UNSENT
from ..headers import new_request_id
from ..kinds import KnownTargets
from ..memory import full
from ..problems import Problem, ProblemType
from ..shared_state import SharedState
from .answers import problem_answer
from .app_request import AppRequest, request_of
from .body import Caller
from .head import MOST_HEAD_BYTES, MOST_HEADERS, not_parsed, too_long_a_head
from .request import HttpRequest

_Request = HttpRequest | AppRequest
CLOSE_SECONDS = 5.0  # Seconds in which a caller takes some of what is left for it, or its connection is cut.
LINGER_SECONDS = 1.0  # Seconds in which a caller that still sends is heard after its last answer.
MOST_AT_ONCE = FIRST_BYTES  # Bytes that are read in one turn of the loop, of requests that may be many.
MOST_NAMES_AND_VALUES = 2 * MOST_HEADERS
MOST_CHUNKS_AT_ONCE = 16 * 1024  # The same within a body of which it is not known where it ends.
MOST_BEGUN = 32  # Requests that are begun before those of others have their turn.
CHUNKS = 16  # Chunks of a body that are as much work as a request's beginning.
HEADER_BYTES = 128  # What a header of a head that is not whole takes beside its bytes.
QUEUED_BYTES = 4096  # What a request takes that waits for those before it.
END = b"\r\n\r\n"
_SIZE = re.compile(rb"[0-9A-Fa-f]+")
_LONGEST_SIZE = 64  # Bytes of a line that may hold a chunk's size: what follows is an extension.


class HttpServer:
    """What the HTTP connections of a proxy share, and which there are."""

    def __init__(self, shared: SharedState, app: ASGIApp) -> None:
        self.shared = shared
        self.app = app  # Answers what is no call of a model.
        self.connections: set[ClientConnection] = set()
        self.answered = 0  # Requests so far.
        self.path = shared.settings.path.rstrip("/").encode()  # Below it, everything is answered as it is without it.
        self.targets = KnownTargets(self.path)

    def connection(self) -> "ClientConnection":
        """Return the proxy's end of a new connection."""
        return ClientConnection(self)


class ClientConnection(Caller):
    """Calls of models are `HttpRequest`s; everything else goes to the application."""

    # Those of a guest, too: Python reads a slot much faster than an attribute for which the class has a value.
    __slots__ = (
        "_active", "_awaits_turn", "_began", "_between", "_body_bytes", "_chunk_at", "_chunk_line", "_chunks",
        "_discards_input", "_framing", "_head_began", "_head_bytes", "_headers", "_in_head", "_last", "_look",
        "_parser", "_put_off", "_queue", "_reading_paused", "_rest", "_server", "_url", "_writing_paused", "base_bytes",
        "booking", "came", "is_bulk", "is_unknown", "last_heard", "memory", "room", "transport", "wire",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self.came = 0
        self.is_bulk, self.is_unknown = False, True
        self.wire = None  # type: ignore[assignment]
        self.last_heard = monotonic()
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._last: _Request | None = None  # The request whose head came last.
        self._active: _Request | None = None  # The one that is answered.
        self._queue: deque[_Request] = deque()  # Those that wait for their turn.
        self._put_off = False  # Whether the next request waits until its answer can be written.
        self._url = b""
        self._headers: list[bytes] = []  # Name, value, name, value, …
        self._in_head = False
        self._between = True  # Whether the parser stands between two requests.
        self._framing = b""
        """A head with the same body as that of the request which wishes for another protocol, if this one does."""
        self._rest = b""  # What has come and waits until the requests before it are answered.
        self._head_bytes = 0
        self._head_began = self.last_heard
        self._began = 0  # Requests that began in what came last, the last one among them.
        self._awaits_turn = False
        self._body_bytes = 0  # Bytes of the last body in what came last.
        self._chunks = 0  # Chunks of bodies in it.
        self._chunk_at: int | None = None  # Bytes of the body before the chunk that began in what came last.
        self._chunk_line = b""  # The beginning of the last line, which may hold a chunk's size and go on.
        self._reading_paused = False
        self._writing_paused = False
        self._discards_input = False  # Whether what the caller sends is dropped: the connection ends.
        self._look: asyncio.TimerHandle | None = None

    # --- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of a client that has connected."""
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        if not self.arrive(self._server.shared.memory):
            self.evict()

    def evict(self) -> None:
        """End it: there is no room for it any more."""
        super().evict()
        if self._in_head and not self._discards_input:
            self._answer(full())
        self._discards_input = True
        self.close()
        if self._active is not None:
            self._active.abandon()
        self.abort_if_slow()

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and send on what can be."""
        if self._discards_input:
            return
        self.last_heard = monotonic()
        if len(data) >= FIRST_BYTES or self._rest or self._awaits_turn:
            self._receive_much(data)
            return
        self._take(data)
        if self._began + self._chunks // CHUNKS > MOST_BEGUN:
            self._await_turn()
        if self._active is not None:
            self._active.flush_request()
        if not self._between or self._queue or self.booking.size > self.base_bytes:
            self._hold()

    def _receive_much(self, data: bytes) -> None:
        self.count_at_once(len(data))
        self._rest += data
        self._read_on()
        if len(data) >= FIRST_BYTES:
            self.take_turns(len(data), self._server.shared.bulk_reads)

    def _read_on(self) -> None:
        """Read of what has come as much as can be answered now; of requests that are many, some in each turn."""
        begun = 0
        while self._rest and not (
            self._queue or self._awaits_turn or self._discards_input or self.transport.is_closing()
        ):
            size = MOST_AT_ONCE
            if not self._between and not self._in_head and self._last is not None:
                size = self._last.body.left or MOST_CHUNKS_AT_ONCE
            data, self._rest = self._rest[:size], self._rest[size:]
            self._take(data)
            begun += self._began + self._chunks // CHUNKS
            if begun > MOST_BEGUN:
                self._await_turn()
        if self._active is not None:
            self._active.flush_request()
        self.listen()
        self._hold()

    def _await_turn(self) -> None:
        self._awaits_turn = True
        self._server.shared.long_work.add(self.owner, self._have_turn)

    def _have_turn(self) -> None:
        self._awaits_turn = False
        self._read_on()

    def _hold(self) -> None:
        """Book what waits here, and refuse what is too much."""
        head = self._head_bytes + HEADER_BYTES * len(self._headers) // 2 if self._in_head or self._queue else 0
        if not self.holds(head + len(self._rest) + QUEUED_BYTES * len(self._queue) + self.unsent):
            if not self._discards_input:
                self.memory.count_cut("held")
            self._refuse(full())
            self.abort_if_slow()

    def _take(self, data: bytes) -> None:
        self._began = self._body_bytes = self._chunks = 0
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as found:
                self._pass_over(data, found)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._refuse(not_parsed(error))
            return
        if not self._between:
            if self._is_head_too_long(data):
                self._refuse(too_long_a_head())
            elif isinstance(self._last, HttpRequest) and self._last.body.chunked and self._is_chunk_too_long(data):
                self._last.refuse(self._last.body.too_long())

    def _is_head_too_long(self, data: bytes) -> bool:
        """Count the bytes of a head that is not whole, or of what is no part of a body that is sent in chunks."""
        if self._began:
            self._head_began = self.last_heard
            self._head_bytes = 0
        if self._in_head:
            # What stands before it in the same data is no part of it: other requests, with their bodies.
            before = data.rfind(END) + len(END) + self._body_bytes if self._began else 0
            self._head_bytes += max(0, len(data) - before)
        elif not self._began:  # extensions and trailers, of which the parser keeps all
            self._head_bytes = 0 if self._body_bytes else self._head_bytes + len(data)
        else:
            return False
        return self._head_bytes > MOST_HEAD_BYTES or len(self._headers) > MOST_NAMES_AND_VALUES

    def _is_chunk_too_long(self, data: bytes) -> bool:
        """Tell whether the chunk that has begun in this data is larger than a body may be, before it has come."""
        assert isinstance(self._last, HttpRequest)
        body, at, before = self._last.body, self._chunk_at, self._chunk_line
        self._chunk_at, last_line = None, data[data.rfind(b"\n") + 1 :]
        self._chunk_line = (before + data if len(last_line) == len(data) else last_line)[:_LONGEST_SIZE]
        if at is None or self._last.response_complete:
            return False
        end = len(data) - (body.received - at)  # What follows the line with the size is of the chunk.
        start = data.rfind(b"\n", 0, end - 1) + 1
        line = data[start:end] if start else before + data[:end]
        size = _SIZE.match(line)
        return size is not None and at + int(size[0], 16) > self._server.shared.body_limit_bytes

    def _pass_over(self, data: bytes, found: httptools.HttpParserUpgrade) -> None:
        """Pass over wishes for another protocol (RFC 9110, 7.8): many clients send `Upgrade: h2c` first.

        The parser takes such a request for one without a body, and what follows for the other protocol.
        """
        while True:
            head, self._framing = self._framing, b""
            if not head:  # CONNECT
                raise found
            data = data[found.args[0] :]
            self._parser = httptools.HttpRequestParser(SkipFirstHead(self))
            self._parser.feed_data(head)
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as another:
                found = another

    def connection_lost(self, _exc: Exception | None) -> None:
        """End what the caller waited for."""
        self._server.connections.discard(self)
        waiting, self._queue = self._queue, deque()
        for request in waiting:
            request.body.release()
            request.response_complete = True
        if self._active is not None:
            self._active.abandon()
        self._last = self._active = None
        del self._parser  # each knows the other: apart, they go at once
        self.lost()

    def pause_writing(self) -> None:
        """Hold the answer back, and hear no more: the caller is slow."""
        self._writing_paused = True
        self._hold()
        self.listen()
        if self._active is not None:
            self._active.receiving_paused(True)

    def write_over_tls(self, data: bytes) -> None:
        """Book what waits, too: TLS has writing paused after the first part, or never."""
        super().write_over_tls(data)
        if self.unsent > MOST_UNSENT:
            self._hold()

    def resume_writing(self) -> None:
        """Let answers be written again: the client takes them."""
        self._writing_paused = False
        if self._active is not None:
            self._active.receiving_paused(False)
        elif self._put_off:
            self._next()
        self._read_on()

    # --- httptools
    def on_message_begin(self) -> None:
        """Begin a request."""
        self._between = False
        self._began += 1
        self._in_head = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Take a part of its address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer, which is dropped (RFC 9110, 6.5.1)."""
        self._headers += (name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, if it is this request's turn."""
        self._in_head = False
        self._body_bytes = 0
        headers, self._headers = self._headers, []  # trailers come next
        if self._discards_input:
            return
        if len(headers) > MOST_NAMES_AND_VALUES:
            raise too_long_a_head()
        targets = self._server.targets
        target = targets.get(self._url) or targets.parse_path(self._url, not self.is_unknown)
        request: _Request
        if target is None:
            server, pairs = self._server, list(zip(headers[::2], headers[1::2], strict=True))
            request, length, chunked = request_of(self, server.app, self._parser, self._url, pairs, server.path)
            if self._parser.should_upgrade():
                self._pass_over_upgrade(length, chunked, request.keep_alive)
        else:
            request = HttpRequest(self, self._server.shared, target, self.last_heard)
            if request.read_head(headers, self._parser, self._head_bytes) and self._parser.should_upgrade():
                self._pass_over_upgrade(request.body.length or 0, request.body.chunked, request.keep_alive)
        before, self._last = self._last, request
        is_next = before is None or before.response_complete
        if is_next and not self._writing_paused:
            self._active = request
            request.start()
        else:
            self._put_off = is_next
            self._queue.append(request)
            self.listen()

    def _pass_over_upgrade(self, length: int, chunked: bool, keep_alive: bool) -> None:
        if self._parser.get_method() != b"CONNECT":
            self._framing = framing(length, chunked=chunked, keep_alive=keep_alive)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        if self._last is not None:
            self._last.take_body(body)

    def on_chunk_header(self) -> None:
        """Note that a chunk begins. The parser keeps its size, which `_is_chunk_too_long` reads."""
        self._chunks += 1
        if isinstance(self._last, HttpRequest):
            self._chunk_at = self._last.body.received

    def on_message_complete(self) -> None:
        """Learn that the request is whole."""
        if self._framing:
            return  # its body, if it has one, is still to be parsed
        self._between = True
        if self._last is not None:
            self._last.end_body()

    # --- for the sweep, and for the proxy's end
    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._in_head and (self._last is None or self._last.response_complete)

    @property
    def is_answering(self) -> bool:
        """Whether a request is under way whose head is whole."""
        return self._last is not None and not self._last.response_complete

    def end_if_late(self, now: float, idle_seconds: float, head_seconds: float) -> None:
        """End the connection if it stands idle too long, or its request's head takes too long to come."""
        if self._in_head and now - self._head_began > head_seconds:
            self._refuse(Problem(ProblemType.SLOW, f"A request's head may take {head_seconds:g} s."))
        elif self.unsent > MOST_UNSENT or self.booking.size > self.base_bytes:
            self._hold()
        elif self.is_idle and now - self.last_heard > idle_seconds:
            self.close()

    def shut_down(self) -> None:
        """End the connection, after the answer to the request that is under way, if there is one."""
        if self._last is None or self._last.response_complete:
            self.transport.close()
        else:
            self._last.keep_alive = False

    # --- requests
    def is_active(self, request: _Request) -> bool:
        """Tell whether it is this request's turn to be answered."""
        return self._active is request

    def ended(self, request: _Request) -> None:
        """Go on with the next request, or end the connection."""
        self._active = None
        self._server.answered += 1
        if not request.keep_alive:
            if not self.transport.is_closing():
                # After CONNECT whatever comes is no part of a request, and its caller may still send.
                self.end(linger=self._reading_paused or not request.body.complete or self._parser.should_upgrade())
        elif (self._queue or self._reading_paused) and not self.transport.is_closing():
            if self._queue and not self._writing_paused:
                self._next()
            if self._rest and not self._writing_paused:
                asyncio.get_running_loop().call_soon(self._read_on)
            self._put_off = bool(self._queue) and self._writing_paused
            self.listen()

    def _next(self) -> None:
        self._put_off = False
        asyncio.get_running_loop().call_soon(self._start, self._queue.popleft())

    def _start(self, request: _Request) -> None:
        if not request.response_complete:
            self._active = request
            request.start()
            request.flush_request()

    def close(self) -> None:
        """End the connection once what is left for the caller is written; cut it when the caller takes none of it."""
        self.transport.close()
        self._look_later()

    def lost(self) -> None:
        """Give all back: what would look at it later knows it no longer."""
        super().lost()
        if self._look is not None:
            self._look.cancel()

    def _look_later(self) -> None:
        if left := self.unsent:
            self._look = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._cut_if_stuck, left)

    def _cut_if_stuck(self, before: int) -> None:
        if self.unsent >= before:
            self.transport.abort()
        else:
            self._look_later()

    def end(self, *, linger: bool) -> None:
        """End the connection; a little later while its caller still sends, or the answer is lost (RFC 9112, 9.6)."""
        self._discards_input = True
        self._rest, self._headers = b"", []
        if linger:
            self.listen()
            if self.transport.can_write_eof():
                self.transport.write_eof()  # the caller need not wait for the end of what it has
            self._look = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)
        else:
            self.close()

    def listen(self) -> None:
        """Hear the caller, unless there is more of it or for it here than is moved on."""
        last = self._last
        held = last is not None and last.body.is_held and not last.response_complete
        pause = (
            bool(held or self._queue or self._rest or self._writing_paused or self.is_bulk) and not self._discards_input
        )
        if pause != self._reading_paused:
            self._reading_paused = pause
            (self.wire.pause_reading if pause else self.wire.resume_reading)()

    def _refuse(self, problem: Problem) -> None:
        """Answer what is no request, and hear no more of this connection."""
        if self._discards_input or self.transport.is_closing():
            return
        last = self._last
        if last is not None and not last.response_complete:
            # The requests before it are answered; then the connection ends.
            self._discards_input = True
            last.keep_alive = False
            if not last.body.complete:
                last.refuse(problem)
            elif self._active is not None:
                self._active.flush_request()
            return
        self._answer(problem)
        self.end(linger=True)

    def _answer(self, problem: Problem) -> None:
        self._server.shared.meter.problem(problem)
        self.transport.write(b"".join(problem_answer(problem, new_request_id(), keep_alive=False)))


class SkipFirstHead:
    """Passes a wish for another protocol over: hides the first head from the connection, forwards later parser events.

    The parser stops after the head of such a request. So another one goes on: it gets a head that announces the same
    body, and then what the caller sent after its own head.
    """

    def __init__(self, connection: Any) -> None:
        self._is_through = False
        self._head_complete = connection.on_headers_complete
        self.on_message_begin = self._later(connection.on_message_begin)
        self.on_url = self._later(connection.on_url)
        self.on_header = self._later(connection.on_header)
        self.on_body = connection.on_body
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete

    def _later(self, event: Callable[..., None]) -> Callable[..., None]:
        def passed_on(*told: bytes) -> None:
            if self._is_through:
                event(*told)

        return passed_on

    def on_headers_complete(self) -> None:
        """Note that a head is whole; the first one is hidden."""
        if self._is_through:
            self._head_complete()
        self._is_through = True


def framing(length: int, *, chunked: bool, keep_alive: bool) -> bytes:
    """Return a head that announces such a body, and whether another request may follow."""
    body = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % length
    return b"POST / HTTP/1.1\r\n%b\r\n%b\r\n" % (body, b"" if keep_alive else b"Connection: close\r\n")
