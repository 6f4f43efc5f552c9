"""A caller's HTTP/1.1 connection. httptools parses the data, and requests are answered in order, one at a time."""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, cast

import httptools
from starlette.types import ASGIApp

from ..batching import BatchingTransport
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
from .head import MOST_HEAD_BYTES, MOST_HEADERS, Shape, Shapes, not_parsed, too_long_a_head
from .request import HttpRequest

_Request = HttpRequest | AppRequest
MOST_AT_ONCE = FIRST_BYTES  # Bytes parsed in one turn of the loop, because they can hold many requests.
MOST_NAMES_AND_VALUES = 2 * MOST_HEADERS
MOST_CHUNKS_AT_ONCE = 16 * 1024  # The same limit within a chunked body, whose end is unknown.
MOST_BEGUN = 32  # Requests that one connection can begin before other connections get a turn.
CHUNKS = 16  # Chunks of a body that cost as much time as beginning a request.
HEADER_BYTES = 128  # Overhead of each header of an incomplete head.
QUEUED_BYTES = 4096  # Memory of a request that waits for earlier ones.
END = b"\r\n\r\n"
_SIZE = re.compile(rb"[0-9A-Fa-f]+")
_LONGEST_SIZE = 64  # Bytes of a line that can hold a chunk's size. The rest of the line is an extension.


class HttpServer:
    """The state that the HTTP connections of a proxy share, and the set of these connections."""

    def __init__(self, shared: SharedState, app: ASGIApp) -> None:
        self.shared = shared
        self.app = app  # Answers requests that are not calls of a model.
        self.connections: set[ClientConnection] = set()
        self.answered = 0  # Number of requests answered so far.
        self.path = shared.settings.path.rstrip("/").encode()  # URLs below it are treated as if they had no prefix.
        self.targets = KnownTargets(self.path)
        self.shapes = Shapes()

    def connection(self) -> "ClientConnection":
        return ClientConnection(self)


class ClientConnection(Caller):
    """A caller's connection. Calls of models become `HttpRequest`s. The application answers all other requests."""

    # Includes attributes of the base class: Python reads a slot much faster than an attribute with a class default.
    __slots__ = (
        "_active", "_awaits_turn", "_began", "_between", "_body_bytes", "_chunk_at", "_chunk_line", "_chunks",
        "_discards_input", "_framing", "_head_began", "_head_bytes", "_headers", "_in_head", "_last", "_look",
        "_parser", "_put_off", "_queue", "_reading_paused", "_rest", "_server", "_shape", "_url", "_writing_paused",
        "base_bytes", "booking", "came", "is_bulk", "is_unknown", "last_read", "memory", "room", "transport", "wire",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self.came = 0
        self.is_bulk, self.is_unknown = False, True
        self.wire = None  # type: ignore[assignment]
        self.last_read = monotonic()
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._last: _Request | None = None  # The request whose head was received last.
        self._active: _Request | None = None  # The request that is being answered.
        self._queue: deque[_Request] = deque()  # Requests that wait for their turn.
        self._put_off = False  # Whether the next request waits until the transport can write again.
        self._url = b""
        self._headers: list[bytes] = []  # Name, value, name, value, …
        self._in_head = False
        self._between = True  # Whether the parser is between two requests.
        self._shape: Shape | None = None  # Of the last head, if its caller is identified.
        self._framing = b""
        """A head that announces the body of the last request, if that requests another protocol."""
        self._rest = b""  # Received data that waits until earlier requests are answered.
        self._head_bytes = 0
        self._head_began = self.last_read
        self._began = 0  # Requests that began in the last data, including an incomplete one.
        self._awaits_turn = False
        self._body_bytes = 0  # Bytes of the last body in the last data.
        self._chunks = 0  # Chunks of bodies in the last data.
        self._chunk_at: int | None = None  # Bytes of the body before the chunk that began in the last data.
        self._chunk_line = b""  # The beginning of the last line, which can be an incomplete line with a chunk's size.
        self._reading_paused = False
        self._writing_paused = False
        self._discards_input = False  # Whether input is dropped, because the connection is ending.
        self._look: asyncio.TimerHandle | None = None

    # --- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, BatchingTransport(transport) if self.wire is None else transport)
        self._server.connections.add(self)
        if not self.arrive(self._server.shared.memory):
            self.evict()

    def evict(self) -> None:
        """End the connection, because its memory is needed for others."""
        super().evict()
        if self._in_head and not self._discards_input:
            self._answer(full())
        self._discards_input = True
        self.close()
        if self._active is not None:
            self._active.abandon()
        self.abort_if_slow()

    def data_received(self, data: bytes) -> None:
        if self._discards_input:
            return
        self.last_read = monotonic()
        try:
            if len(data) >= FIRST_BYTES or self._rest or self._awaits_turn:
                self._receive_much(data)
                return
            if self._shape is None or not self._take_whole(data, self._shape):
                self._take(data)
                if self._began + self._chunks // CHUNKS > MOST_BEGUN:
                    self._await_turn()
            if self._active is not None:
                self._active.flush_request()
            if not self._between or self._queue or self.booking.size > self.base_bytes:
                self._hold()
        except Exception as error:  # asyncio would cut the connection
            self._refuse(not_parsed(error))

    def eof_received(self) -> None:
        """Write what waits, because the transport closes next: a caller can half-close after its request."""
        self.transport.is_closing()  # any use of a BatchingTransport writes

    def _receive_much(self, data: bytes) -> None:
        self.count_at_once(len(data))
        self._rest += data
        self._read_on()
        if len(data) >= FIRST_BYTES:
            self.take_turns(len(data), self._server.shared.bulk_reads)

    def _read_on(self) -> None:
        """Parse as much of the waiting data as can be answered now, a limited number of requests in each turn."""
        try:
            self._read_waiting()
        except Exception as error:  # the loop would only log it
            self._refuse(not_parsed(error))

    def _read_waiting(self) -> None:
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
        """Count the memory of waiting data. Refuse the request if that is too much."""
        head = self._head_bytes + HEADER_BYTES * len(self._headers) // 2 if self._in_head or self._queue else 0
        if not self.holds(head + len(self._rest) + QUEUED_BYTES * len(self._queue) + self.unsent):
            if not self._discards_input:
                self.memory.count_cut("held")
            self._refuse(full())
            self.abort_if_slow()

    def _take_whole(self, data: bytes, shape: Shape) -> bool:
        """Take a whole request with a head like the last one, without the parser. Return False if it is not one."""
        last = self._last
        if not self._between or last is None or not last.response_complete or self._writing_paused:
            return False
        head = shape.match(data)
        if head is None or (target := self._server.targets.get(head[2])) is None:
            return False
        request, body = HttpRequest(self, self._server.shared, target, self.last_read), data[head.end() :]
        if not request.read_whole(head, shape, len(body)):
            return False
        self._last = self._active = request
        request.start()
        if body:
            request.take_body(body)
        request.end_body()
        return True

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
        """Count the bytes of an incomplete head, or of a chunked body's extensions and trailers."""
        if self._began:
            self._head_began = self.last_read
            self._head_bytes = 0
        if self._in_head:
            # Earlier requests and bodies in the same data do not count.
            before = data.rfind(END) + len(END) + self._body_bytes if self._began else 0
            self._head_bytes += max(0, len(data) - before)
        elif not self._began:  # extensions and trailers: the parser keeps all of them
            self._head_bytes = 0 if self._body_bytes else self._head_bytes + len(data)
        else:
            return False
        return self._head_bytes > MOST_HEAD_BYTES or len(self._headers) > MOST_NAMES_AND_VALUES

    def _is_chunk_too_long(self, data: bytes) -> bool:
        """Return whether the chunk that began in this data exceeds the body limit, before it was received."""
        assert isinstance(self._last, HttpRequest)
        body, at, before = self._last.body, self._chunk_at, self._chunk_line
        self._chunk_at, last_line = None, data[data.rfind(b"\n") + 1 :]
        self._chunk_line = (before + data if len(last_line) == len(data) else last_line)[:_LONGEST_SIZE]
        if at is None or self._last.response_complete:
            return False
        end = len(data) - (body.received - at)  # The chunk's data follows the line with its size.
        start = data.rfind(b"\n", 0, end - 1) + 1
        line = data[start:end] if start else before + data[:end]
        size = _SIZE.match(line)
        return size is not None and at + int(size[0], 16) > self._server.shared.body_limit_bytes

    def _pass_over(self, data: bytes, found: httptools.HttpParserUpgrade) -> None:
        """Ignore requests for another protocol (RFC 9110, 7.8). Many clients send `Upgrade: h2c` first. The parser
        assumes that such a request has no body, and that the data after it belongs to the other protocol."""
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
        self._server.connections.discard(self)
        waiting, self._queue = self._queue, deque()
        for request in waiting:
            request.body.release()
            request.response_complete = True
        if self._active is not None:
            self._active.abandon()
        self._last = self._active = None
        del self._parser  # parser and connection refer to each other: without the cycle both are freed immediately
        self.lost()

    def pause_writing(self) -> None:
        """Pause the response and reading, because the caller reads slowly."""
        self._writing_paused = True
        self._hold()
        self.listen()
        if self._active is not None:
            self._active.receiving_paused(True)

    def write_over_tls(self, data: bytes) -> None:
        """Write, and count the unsent data. Over TLS, asyncio pauses writing after the first part or never."""
        super().write_over_tls(data)
        if self.unsent > MOST_UNSENT:
            self._hold()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._active is not None:
            self._active.receiving_paused(False)
        elif self._put_off:
            self._next()
        self._read_on()

    # --- httptools
    def on_message_begin(self) -> None:
        self._between = False
        self._began += 1
        self._in_head = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Collect the URL, which can come in parts."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header. A trailer is collected too, but dropped later (RFC 9110, 6.5.1)."""
        self._headers += (name, value)

    def on_headers_complete(self) -> None:
        """Create the request, and start it if it is its turn."""
        self._body_bytes = 0
        self._chunk_at = None
        headers, self._headers = self._headers, []  # trailers come next
        if self._discards_input:
            self._in_head = False
            return
        if len(headers) > MOST_NAMES_AND_VALUES:
            raise too_long_a_head()
        targets = self._server.targets
        target = targets.get(self._url) or targets.parse_path(self._url, not self.is_unknown)
        request: _Request
        if target is None:
            server, pairs = self._server, list(zip(headers[::2], headers[1::2], strict=True))
            request, length, chunked = request_of(
                self, server.shared, server.app, self._parser, self._url, pairs, server.path
            )
            if self._parser.should_upgrade():
                self._pass_over_upgrade(length, chunked, request.keep_alive)
        else:
            request, shapes = HttpRequest(self, self._server.shared, target, self.last_read), self._server.shapes
            if request.read_head(headers, self._parser, self._head_bytes, shapes) and self._parser.should_upgrade():
                self._pass_over_upgrade(request.body.length or 0, request.body.chunked, request.keep_alive)
            self._shape = None if self.is_unknown else request.shape
            if self._shape is not None:
                shapes.learn(self._shape)
        before, self._last, self._in_head = self._last, request, False
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
        self._body_bytes += len(body)
        if self._last is not None:
            self._last.take_body(body)

    def on_chunk_header(self) -> None:
        """Note that a chunk begins. httptools does not pass its size on: `_is_chunk_too_long` reads it."""
        self._chunks += 1
        if isinstance(self._last, HttpRequest):
            self._chunk_at = self._last.body.received

    def on_message_complete(self) -> None:
        if self._framing:
            return  # its body, if any, is still to be parsed
        self._between = True
        if self._last is not None:
            self._last.end_body()

    # --- for the sweep, and when the proxy stops
    @property
    def is_answering(self) -> bool:
        """Whether a request with a complete head is in progress."""
        return self._last is not None and not self._last.response_complete

    def end_if_late(self, now: float, idle_seconds: float, head_seconds: float) -> None:
        """End the connection if it is idle too long, or if its request's head takes too long."""
        if self._in_head and now - self._head_began > head_seconds:
            why = f"The request's headers took too long: the limit is {head_seconds:g} s."
            self._refuse(Problem(ProblemType.SLOW, why))
        elif self.unsent > MOST_UNSENT or self.booking.size > self.base_bytes:
            self._hold()
        elif not (self._in_head or self.is_answering) and now - self.last_read > idle_seconds:
            self.close()

    def shut_down(self) -> None:
        """End the connection, after the response to the current request if there is one."""
        if self._last is None or self._last.response_complete:
            self.transport.close()
        else:
            self._last.keep_alive = False

    # --- requests
    def is_active(self, request: _Request) -> bool:
        return self._active is request

    def ended(self, request: _Request) -> None:
        """Start the next request, or end the connection."""
        self._active = None
        self._server.answered += 1
        if not request.keep_alive:
            if not self.transport.is_closing():
                # After CONNECT the input is not a request, and the caller may still be sending.
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
            try:
                request.start()
                request.flush_request()
            except Exception as error:  # the loop would only log it
                request.refuse(not_parsed(error))

    def close(self) -> None:
        """Close after the unsent data is written. Cut the connection if the caller stops reading."""
        self.transport.close()
        self._look_later()

    def lost(self) -> None:
        super().lost()
        if self._look is not None:
            self._look.cancel()

    def _look_later(self) -> None:
        if left := self.unsent:
            seconds = self._server.shared.tunables.close_seconds
            self._look = asyncio.get_running_loop().call_later(seconds, self._cut_if_stuck, left)

    def _cut_if_stuck(self, before: int) -> None:
        if self.unsent >= before:
            self.transport.abort()
        else:
            self._look_later()

    def end(self, *, linger: bool) -> None:
        """End the connection. `linger`: the caller still sends, and would lose the response (RFC 9112, 9.6)."""
        self._discards_input = True
        self._rest, self._headers = b"", []
        if linger:
            self.listen()
            if self.transport.can_write_eof():
                self.transport.write_eof()  # the caller sees the end of its response without the delay
            self._look = asyncio.get_running_loop().call_later(self._server.shared.tunables.linger_seconds, self.close)
        else:
            self.close()

    def listen(self) -> None:
        """Read from the caller, unless there is data to be processed or sent first."""
        last = self._last
        held = last is not None and last.body.is_held and not last.response_complete
        waits = held or self._queue or self._rest or self._writing_paused or self.is_bulk
        pause = bool(waits) and not self._discards_input
        if pause != self._reading_paused:
            self._reading_paused = pause
            (self.wire.pause_reading if pause else self.wire.resume_reading)()

    def _refuse(self, problem: Problem) -> None:
        """Answer an invalid request, and stop reading from the connection."""
        if self._discards_input or self.transport.is_closing():
            return
        last = self._last
        if last is not None and not last.response_complete:
            # Answer the earlier requests. Then the connection ends.
            self._discards_input = True
            last.keep_alive = False
            if not last.body.complete or (problem.type is ProblemType.INTERNAL and not self._in_head):
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
    """Ignores a request's `Upgrade`. The parser stops after its head, so a second one continues. It first gets a head
    that announces the same body, which this hides from the connection, then the data after the caller's head."""

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
        def passed_on(*given: bytes) -> None:
            if self._is_through:
                event(*given)

        return passed_on

    def on_headers_complete(self) -> None:
        """Hide the first head, and forward the others."""
        if self._is_through:
            self._head_complete()
        self._is_through = True


def framing(length: int, *, chunked: bool, keep_alive: bool) -> bytes:
    """Return a head that announces a body of this length, and whether another request can follow."""
    body = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % length
    return b"POST / HTTP/1.1\r\n%b\r\n%b\r\n" % (body, b"" if keep_alive else b"Connection: close\r\n")
