"""An exchange at its replica: the request as it is sent on, and the answer as it is handed back to the caller."""

from collections.abc import Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ..forwarded import Forwarded
from ..forwarding import no_whole_answer
from ..mirror import NO_COPY, over_http
from ..problems import CONTENT_TYPE, Problem
from ..request_ids import new_request_id
from ..residency.saying import LOST, LOST_STATUSES
from ..telemetry.records import CallRecord
from ..upstream.connection import Connection
from ..upstream.replica import Replica
from .head import Head

if TYPE_CHECKING:
    from ..telemetry.traces import Tracer
    from .door import Door

STATUS_LINES = {status: f"HTTP/1.1 {status} \r\n".encode() for status in range(100, 1000)} | STATUS_LINE
VERSION_HEADER = b"\r\ntidegate-model-version: "
MOST_DRAINED = 1024 * 1024
"""Bytes of a body that nobody wants that are read to save the caller's connection."""


class Relay(Forwarded[Connection]):
    """What comes and goes, as bytes; the exchange decides where to, and what is read of the caller."""

    # What most exchanges never change costs them nothing here.
    body_bytes = 0
    body_complete = False
    response_complete = False
    _chunk: bytearray
    """What goes on as one chunk, however small the caller's are; where its body is chunked."""
    paused = False
    """Whether no more of its body is read for now."""
    _connection: Connection | None = None
    _began = False
    """Whether the answer has begun."""
    _status = 0
    _answer_chunked = False
    _answer_bytes = 0

    def __init__(self, door: "Door", head: Head, started: float) -> None:
        self.door = door
        self.shared = door.shared
        self.head = head
        self.target = head.target
        self.length = head.length
        self.chunked = head.chunked
        self.expects_continue = head.expects_continue
        self.keep_alive = head.keep_alive
        self.request_id = head.request_id or new_request_id()
        self.started = started
        self.deadline = started + head.seconds
        if self.chunked:
            self._chunk = bytearray()
        self._out: list[bytes | bytearray] = []
        self._reply: list[bytes] = []

    @property
    def _model(self) -> str:
        return self.target.model

    def sending_paused(self, paused: bool) -> None:
        """Hold the caller's body back, or let it come."""
        raise NotImplementedError

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with work that waits for something."""
        raise NotImplementedError

    def _finish(self, status: int) -> None:
        """Give back and count everything: it has ended."""
        raise NotImplementedError

    # --- to the replica
    async def _connection_to(self, replica: Replica) -> Connection:
        return await replica.connect(self.shared.settings.connect_timeout_seconds)

    def _not_used(self, replica: Replica, connection: Connection) -> None:
        replica.give(connection, monotonic())

    def _send_head(self, replica: Replica, connection: Connection) -> None:
        assert self._grant is not None
        self._replica, self._connection = replica, connection
        replica.in_flight += 1
        replica.requests += 1
        if self._lease is not None:
            self._lease.enter()
        self._grant.route.pool.retries.sent()
        connection.receiver = self
        head: list[bytes | bytearray] = [
            self._grant.route.first_lines(self.target, self._version),
            self.head.passed if self.shared.tracer is None else self._traced(self.shared.tracer),
            b"x-request-id: ",
            self.request_id,
        ]
        if self.chunked:
            head.append(b"\r\ntransfer-encoding: chunked\r\n\r\n")
        elif self.length is not None:
            head.append(b"\r\ncontent-length: %d\r\n\r\n" % self.length)
        else:
            head.append(b"\r\n\r\n")
        if self._out:
            self._out[:0] = head
        else:
            self._out = head
        if self.paused:
            self.sending_paused(False)
        if self._task is not None:  # otherwise the door flushes when it has read all that is at hand
            self.flush_request()

    def _traced(self, tracer: "Tracer") -> bytes:
        """Return the headers that go on to the replica: where the call is sampled, its parent is the proxy's span."""
        if self._passed is None:
            self._span, self._passed = tracer.over_http(self.head.passed)
        return self._passed

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""
        if self.chunked:
            self._end_chunk()
        if self._out and self._connection is not None:
            data = b"".join(self._out)
            self._connection.transport.write(data)
            self._out.clear()
            if self._grant.route.mirror is not None:  # type: ignore[union-attr]  # who has a connection was granted it
                self._keep_copy(data)

    def _end_chunk(self) -> None:
        if self._chunk and (self._connection is not None or self.body_complete):
            self._out += (b"%x\r\n" % len(self._chunk), self._chunk, b"\r\n")
            self._chunk = bytearray()

    def _keep_copy(self, data: bytes) -> None:
        """Keep what was sent for the candidate, if this request is one that it gets."""
        assert self._grant is not None
        route, copy = self._grant.route, self._copy
        if copy is None:
            assert route.mirror is not None
            shared, copy = self.shared, NO_COPY
            if self.target.action == "infer":
                first = route.first_lines(self.target, route.mirror.version)
                send = partial(over_http, shared.settings.connect_timeout_seconds, first)
                copy = shared.mirror.begin(route, self._version, self._sequence is not None or None, send)
            self._copy = copy
            if copy is not NO_COPY:
                data = data[len(route.first_lines(self.target, self._version)) :]
        copy.add(data, self.body_complete)

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- from the replica
    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Hand the status and the headers on."""
        self._status = status
        self._began = True
        if self._replica is not None:
            self._replica.breaker.succeeded(self._trial)
        if not self.body_complete or self.shared.draining:
            self.keep_alive = False
        reply = [STATUS_LINES[status], head, b"x-request-id: ", self.request_id]
        if self._version is not None:
            reply += (VERSION_HEADER, self._version.encode())
        if length is not None:
            reply.append(b"\r\ncontent-length: %d" % length)
        elif self.head.http_11:
            self._answer_chunked = True
            reply.append(b"\r\ntransfer-encoding: chunked")
        else:
            self.keep_alive = False
        reply.append(b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n")
        self._reply = reply

    def answer_data(self, data: bytes) -> None:
        """Hand a part of the body on."""
        self._answer_bytes += len(data)
        if self._answer_chunked:
            self._reply += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._reply.append(data)

    def answer_ended(self) -> None:
        """Hand the end on, and keep the connection for the next call."""
        if self._answer_chunked:
            self._reply.append(b"0\r\n\r\n")
        connection, replica = self._connection, self._replica
        assert connection is not None
        assert replica is not None
        connection.receiver = None
        self._connection = None
        if connection.keep and self.body_complete and not self._out:
            replica.give(connection, monotonic())
        else:
            connection.close()
        unsaid = self._lease is not None and self._reply[:1] == [STATUS_LINES[self._status]]
        if unsaid and self._status in LOST_STATUSES and LOST.search(b"".join(self._reply)) and self._has_version():
            self._reply.clear()
            self._began = False
            self._lost_model()
            return
        self.flush_answer()
        self._finish(self._status)

    def answer_failed(self, reason: str) -> None:
        """Tell the caller, as far as that is still possible."""
        replica = self._replica
        assert replica is not None
        self._connection = None
        self._count_failure(replica, "reset")
        bodiless = not self.length and not self.chunked  # what came of a body is gone
        if not self._began and self.target.method == b"GET" and bodiless and not self._tried:
            self._release_replica()
            self._out.clear()
            self._later(self._connect(self._other(replica)))
            return
        self.fail(no_whole_answer(reason))

    # --- to the caller
    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""
        if self._connection is not None:
            if paused:
                self._connection.transport.pause_reading()
            else:
                self._connection.transport.resume_reading()

    def flush_answer(self) -> None:
        """Send on what has come so far."""
        if self._reply:
            self.door.transport.write(b"".join(self._reply))
            self._reply.clear()

    def _say(self, status: int, media_type: str, body: bytes) -> None:
        self.answer_began(status, f"content-type: {media_type}\r\n".encode(), len(body))
        self.answer_data(body)
        self.flush_answer()
        self._finish(status)

    def fail(self, problem: Problem) -> None:
        """End it with a problem; where an answer has begun, only the end of the connection can tell."""
        if self.response_complete:
            return
        self._drop_connection()
        self._problem = problem.kind.word
        self.shared.meter.problems[problem.kind.word] += 1
        if self._began:
            self._reply.clear()
            # A body with a length or in chunks is seen to be cut short when the connection just ends; another is not.
            self.keep_alive = False
            if not self.head.http_11:
                self.door.transport.abort()
            self._finish(problem.kind.status)
            return
        left = (self.length or 0) - self.body_bytes
        if not self.body_complete and (self.chunked or left > MOST_DRAINED or self.expects_continue):
            self.keep_alive = False
        with_body = self.head.method != b"HEAD"
        head, body = answer_of(problem, self.request_id, self.keep_alive)
        if with_body:
            self._answer_bytes = len(body)
        self.door.transport.write(head + body if with_body else head)
        self._finish(problem.kind.status)

    # --- for logs and traces
    def _told(self, seconds: float) -> CallRecord:
        target = self.target
        size = self.body_bytes, self._answer_bytes
        return self._told_as("http", target.verb, (target.server, target.model), seconds, size)

    def _trace(self, tracer: "Tracer", status: int, seconds: float) -> None:
        target = self.target
        span = self._span or tracer.over_http(self.head.passed)[0]
        if span.sampled:
            tail = "" if target.verb == "metadata" else f"/{target.verb}"
            more = {
                "network.protocol.version": "1.1" if self.head.http_11 else "1.0",
                "http.request.body.size": self.body_bytes,
                "http.response.body.size": self._answer_bytes,
                **self._told(seconds).span_fields(),
            }
            route = f"{target.method.decode()} /v2/models/{{model}}{tail}"
            tracer.http_ended(span, route, status, seconds, more)


def answer_of(problem: Problem, request_id: bytes, keep_alive: bool) -> tuple[bytes, bytes]:
    """Return the head and the body of the answer that tells a problem."""
    body = problem.body(request_id.decode())
    head = [
        STATUS_LINES[problem.kind.status],
        b"content-type: ", CONTENT_TYPE.encode(), b"\r\nx-request-id: ", request_id, b"\r\n",
        b"content-length: %d\r\n" % len(body),
    ]  # fmt: skip
    for name, value in problem.headers():
        head += (name, b": ", value, b"\r\n")
    head.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(head), body
