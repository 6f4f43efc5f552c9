"""One request of a caller, and its answer: decided, sent to a replica, and handed back as it comes.

When all is at hand (a known credential, a place, an idle connection) a call runs through without a task of its own:
that is the fast path. Whatever has to be waited for is awaited in one task, and then the same steps go on.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ..access.gate import Grant
from ..mirror.copies import NO_COPY, AnyCopy
from ..mirror.sending import over_http
from ..problems import CONTENT_TYPE, Kind, Problem
from ..routes import Route
from ..upstream.connection import Connection
from ..upstream.pool import Replica
from .hall import Expiring, new_request_id
from .head import Head
from .sequences import learn, sequence_of

if TYPE_CHECKING:
    from ..seeing.traces import Span, Tracer
    from .door import Door

STATUS_LINES = {status: f"HTTP/1.1 {status} \r\n".encode() for status in range(100, 1000)} | STATUS_LINE
VERSION_HEADER = b"\r\ntidegate-model-version: "
MOST_UNSENT = 256 * 1024
"""Bytes of a body that wait for a connection before its sender is held."""
MOST_DRAINED = 1024 * 1024
"""Bytes of a body that nobody wants that are read to save the caller's connection."""
CLIENT_LEFT = 499
"""What is counted for a caller who left; nobody receives it (nginx's number)."""


class _NoEvent:
    def set(self) -> None:
        """Do nothing: no exchange waits for uvicorn's messages."""


class Exchange(Expiring):
    """Begins when the request's head is there. The door hands it the body; a connection hands it the answer."""

    message_event: ClassVar[_NoEvent] = _NoEvent()
    # What most exchanges never change costs them nothing here.
    body_bytes = 0
    body_complete = False
    response_complete = False
    disconnected = False
    _refusal: Problem | None = None
    _grant: Grant | None = None
    _connection: Connection | None = None
    _replica: Replica | None = None
    _tried: tuple[Replica, ...] = ()
    _task: asyncio.Task[None] | None = None
    _version: str | None = None
    _placed = False
    _in_line = False
    _paused = False
    _began = False
    _status = 0
    _answer_chunked = False
    _answer_bytes = 0
    _problem: str | None = None
    _sequence: bytes | None = None
    _whole: asyncio.Future[None] | None = None
    _copy: AnyCopy | None = None
    _span: "Span | None" = None
    _passed: bytes | None = None
    _answer_bytes_before = 0

    def __init__(self, door: "Door", head: Head, started: float) -> None:
        self.door = door
        self.head = head
        self.target = head.target
        self.length = head.length
        self.chunked = head.chunked
        self.expects_continue = head.expects_continue
        self.keep_alive = head.keep_alive
        self.request_id = head.request_id or new_request_id()
        self.started = started
        self.deadline = started + head.seconds
        self._out: list[bytes] = []
        self._reply: list[bytes] = []

    # --- from the caller
    def start(self) -> None:
        """Decide and send, as far as that goes without waiting."""
        self.door.hall.under_way.add(self)
        if (refusal := self.head.refusal or self._refusal) is not None:
            self.keep_alive = False
            self.fail(refusal)
            return
        if self.head.method != self.target.method:
            allow = self.target.method.decode()
            self.fail(Problem(Kind.METHOD, f"This address takes {allow}.", allow=allow))
            return
        if self.length is not None and self.length > self.door.hall.settings.body_limit_bytes:
            self.fail(self._too_long())
            return
        self._decide()

    def _decide(self) -> None:
        target = self.target
        grant = self.door.hall.gate.known(self.head.credential, target.server, target.model, target.action)
        if grant is None:
            self._later(self._ask())
        else:
            self._granted(grant)

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""
        if self.door.active is self:
            self.fail(problem)
        else:
            self._refusal = problem

    def take_body(self, data: bytes) -> None:
        """Take a part of the request's body."""
        if self.response_complete:
            return
        self.body_bytes += len(data)
        if self.chunked:
            if self.body_bytes > self.door.hall.settings.body_limit_bytes:
                self.refuse(self._too_long())
                return
            self._out += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._out.append(data)
        if self._connection is None and self.body_bytes > MOST_UNSENT and not self._paused and self._whole is None:
            self.sending_paused(True)

    def end_body(self) -> None:
        """Learn that the request is whole."""
        self.body_complete = True
        if self.chunked and not self.response_complete:
            self._out.append(b"0\r\n\r\n")
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(None)

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""
        if self._out and self._connection is not None:
            data = b"".join(self._out)
            self._connection.transport.write(data)
            self._out.clear()
            if self._grant.route.mirror is not None:  # type: ignore[union-attr]  # who has a connection was granted it
                self._keep_copy(data)

    def _keep_copy(self, data: bytes) -> None:
        """Keep what was sent for the candidate, if this request is one that it gets."""
        assert self._grant is not None
        route, copy = self._grant.route, self._copy
        if copy is None:
            assert route.mirror is not None
            hall, copy = self.door.hall, NO_COPY
            if self.target.action == "infer":
                first = route.first_lines(self.target, route.mirror.version)
                send = partial(over_http, hall.settings.connect_timeout_seconds, first)
                copy = hall.copies.begin(route, self._version, self._sequence is not None or None, send)
            self._copy = copy
            if copy is not NO_COPY:
                data = data[len(route.first_lines(self.target, self._version)) :]
        copy.add(data, self.body_complete)

    def abandon(self) -> None:
        """End it: the caller has left. What a replica does for it is dropped."""
        if not self.response_complete:
            self.disconnected = True
            self._drop_connection()
            self._finish(CLIENT_LEFT)

    def expire(self) -> None:
        """End it: its time is up. A stream that moves goes on, unless the caller said when it is to end."""
        most = self.door.hall.settings.request_timeout_seconds
        streams = self._began and self.target.verb == "generate_stream" and self.head.seconds >= most
        if streams and self._answer_bytes > self._answer_bytes_before:
            self._answer_bytes_before = self._answer_bytes
            self.deadline = monotonic() + most
            return
        if self._replica is not None and self._connection is not None:
            self._replica.breaker.given_up()
        self.fail(Problem(Kind.DEADLINE, f"There was no answer within {self.deadline - self.started:g} s."))

    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""
        if self._connection is not None:
            if paused:
                self._connection.transport.pause_reading()
            else:
                self._connection.transport.resume_reading()

    # --- towards the replica
    async def _ask(self) -> None:
        target = self.target
        grant = await self.door.hall.gate.ask(self.head.credential, target.server, target.model, target.action)
        self._granted(grant)

    def _granted(self, grant: Grant) -> None:
        self._grant = grant
        if self.expects_continue and not self.body_complete:
            self.door.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        if grant.bucket is not None and (wait := grant.bucket.take(self.started)):
            rate = f"{grant.bucket.rate * 60:.4g} requests a minute, {grant.bucket.burst:g} at once"
            self.fail(Problem(Kind.RATE_LIMITED, f"You may send this model {rate} through this proxy.", wait))
            return
        route = grant.route
        if route.sequential is not False and len(route.pool.replicas) > 1 and self.target.verb == "infer":
            self._later(self._find_sequence(route))
        else:
            self._enter(self.head.sticky)

    async def _find_sequence(self, route: Route) -> None:
        """Learn whether the model knows sequences, and if so which one this is."""
        if route.sequential is None:
            await learn(route, self.door.hall.settings.connect_timeout_seconds)
        if route.sequential:
            self._whole = self.door.loop.create_future()
            if self.body_complete:
                self._whole.set_result(None)
            elif self._paused:
                self.sending_paused(False)
            await self._whole
            body = b"".join(self._out[1::3] if self.chunked else self._out)  # chunks stand between size and end of line
            self._sequence = sequence_of(self.head.passed, body, self.door.hall.settings.body_limit_bytes)
        # One sequence has one version.
        self._enter(self.head.sticky or self._sequence)

    def _enter(self, sticky: bytes | None) -> None:
        assert self._grant is not None
        self._version = self._grant.route.version(self.target.version, sticky)
        places = self.door.hall.places
        if places.take():
            self.placed()
        elif places.wait(self):
            self._in_line = True
        else:
            self.fail(Problem(Kind.BUSY, "Too many requests wait already.", 1.0))

    def placed(self) -> None:
        """Go on: there is a place."""
        waited, self._in_line = self._in_line, False
        self._placed = True
        assert self._grant is not None
        now = monotonic()
        replica = self._pick(())
        if replica is not None and (connection := replica.take(now)) is not None:
            self._send(replica, connection)
            if waited:
                self.flush_request()
        else:
            self._later(self._connect(replica))

    def _pick(self, tried: tuple[Replica, ...]) -> Replica | None:
        assert self._grant is not None
        pool = self._grant.route.pool
        if self._sequence is None:
            return pool.pick(monotonic(), tried)
        return pool.pick_for(self.target.model.encode() + b"\0" + self._sequence, monotonic(), tried)

    async def _connect(self, replica: Replica | None) -> None:
        assert self._grant is not None
        pool = self._grant.route.pool
        while replica is not None:
            try:
                connection = await replica.connect(self.door.hall.settings.connect_timeout_seconds)
            except OSError as error:  # a time-out too: nothing was sent, so another replica may have it
                self._count_failure(replica, type(error).__name__)
                replica = self._other(replica)
                continue
            self._send(replica, connection)
            return
        where = f"{pool.server}/{pool.name}"
        why = f"No replica of {where} takes connections." if self._tried else f"No replica of {where} is there."
        raise Problem(Kind.BUSY, why, max(0.1, pool.retry_in(monotonic())))

    def _send(self, replica: Replica, connection: Connection) -> None:
        assert self._grant is not None
        self._replica, self._connection = replica, connection
        replica.in_flight += 1
        replica.requests += 1
        self._grant.route.pool.retries.sent()
        replica.breaker.sent()
        connection.receiver = self
        head = [
            self._grant.route.first_lines(self.target, self._version),
            self.head.passed if self.door.hall.tracer is None else self._traced(self.door.hall.tracer),
            b"x-request-id: ",
            self.request_id,
        ]
        if self.chunked:
            head.append(b"\r\ntransfer-encoding: chunked\r\n\r\n")
        elif self.length is not None:
            head.append(b"\r\ncontent-length: %d\r\n\r\n" % self.length)
        else:
            head.append(b"\r\n\r\n")
        self._out[:0] = head
        if self._paused:
            self.sending_paused(False)
        if self._task is not None:  # otherwise the door flushes when it has read all that is at hand
            self.flush_request()

    def _traced(self, tracer: "Tracer") -> bytes:
        """Return the headers that go on to the replica: where the call is sampled, its parent is the proxy's span."""
        if self._passed is None:
            self._span, self._passed = tracer.over_http(self.head.passed)
        return self._passed

    def sending_paused(self, paused: bool) -> None:
        """Hold the caller's body back, or let it come."""
        self._paused = paused
        self.door.hold(paused)

    # --- from the replica
    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Hand the status and the headers on."""
        self._status = status
        self._began = True
        if self._replica is not None:
            self._replica.breaker.succeeded()
        if not self.body_complete or self.door.hall.leaving:
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
        self.flush_answer()
        self._finish(self._status)

    def answer_failed(self, reason: str) -> None:
        """Tell the caller, as far as that is still possible."""
        replica = self._replica
        assert replica is not None
        self._connection = None
        self._count_failure(replica, "reset")
        if not self._began and self.target.method == b"GET" and not self._tried:
            self._release_replica()
            self._out.clear()
            self._later(self._connect(self._other(replica)))
            return
        self.fail(
            Problem(
                Kind.UPSTREAM,
                f"The inference server gave no whole answer: {reason}. It may have done the work; "
                "send the request again only if that does no harm.",
            )
        )

    def flush_answer(self) -> None:
        """Send on what has come so far."""
        if self._reply:
            self.door.transport.write(b"".join(self._reply))
            self._reply.clear()

    # ---
    def fail(self, problem: Problem) -> None:
        """End it with a problem; where an answer has begun, only the end of the connection can tell."""
        if self.response_complete:
            return
        self._drop_connection()
        if self._began:
            self._reply.clear()
            # A body with a length or in chunks is seen to be cut short when the connection just ends; another is not.
            self.keep_alive = False
            if not self.head.http_11:
                self.door.transport.abort()
            self._finish(self._status)
            return
        self._problem = problem.kind.word
        self.door.hall.meter.problems[problem.kind.word] += 1
        left = (self.length or 0) - self.body_bytes
        if not self.body_complete and (self.chunked or left > MOST_DRAINED or self.expects_continue):
            self.keep_alive = False
        body = problem.body(self.request_id.decode())
        head = [
            STATUS_LINES[problem.kind.status],
            b"content-type: ", CONTENT_TYPE.encode(), b"\r\nx-request-id: ", self.request_id, b"\r\n",
            b"content-length: %d\r\n" % len(body),
        ]  # fmt: skip
        for name, value in problem.headers():
            head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if self.head.method != b"HEAD":
            head.append(body)
            self._answer_bytes = len(body)
        self.door.transport.write(b"".join(head))
        self._finish(problem.kind.status)

    def _too_long(self) -> Problem:
        limit = self.door.hall.settings.body_limit_bytes
        return Problem(Kind.TOO_LONG, f"A request's body may have {limit} bytes here.")

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.door.loop.create_task(self._work(work))
        self._task.add_done_callback(lambda _: work.close())  # one that is cancelled before it begins is never awaited

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self.door.logger.exception("request %s met a defect", self.request_id.decode())
            self.fail(Problem(Kind.INTERNAL, "It is in the log, under this request's id."))

    def _other(self, failed: Replica) -> Replica | None:
        """Return another replica to send the request to, if there is one, and retries are not used up."""
        assert self._grant is not None
        pool = self._grant.route.pool
        self._tried += (failed,)
        other = self._pick(self._tried)
        return other if other is not None and pool.retries.take(monotonic()) else None

    def _count_failure(self, replica: Replica, how: str) -> None:
        replica.failures += 1
        replica.breaker.failed(monotonic())
        assert self._grant is not None
        self.door.hall.meter.upstream_errors[self._grant.route.server, how] += 1

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            if self._replica is not None:
                self._replica.breaker.given_up()

    def _release_replica(self) -> None:
        if self._replica is not None:
            self._replica.in_flight -= 1
            self._replica = None

    def _finish(self, status: int) -> None:
        self.response_complete = True
        hall = self.door.hall
        hall.under_way.discard(self)
        replica = self._replica
        if replica is not None:
            replica.in_flight -= 1
        task = self._task
        if task is not None and task is not asyncio.current_task(self.door.loop):
            task.cancel()
        if self._in_line:
            hall.places.leave_line(self)
        if self._placed:
            hall.places.leave()
        now = monotonic()
        seconds = now - self.started
        if self._grant is not None:
            route = self._grant.route
            count = route.http_count
            if count is None:
                count = route.http_count = hall.meter.count(route.server, route.name, "http")
            count.ended(status, seconds, self.body_bytes, self._answer_bytes)
        if hall.tracer is not None:
            self._trace(hall.tracer, status, seconds)
        if hall.call_log.wants(status, now):
            self._log(status, seconds)
        self.door.exchange_ended(self)

    def _trace(self, tracer: "Tracer", status: int, seconds: float) -> None:
        target, grant = self.target, self._grant
        span = self._span or tracer.over_http(self.head.passed)[0]
        if span.sampled:
            tail = "" if target.verb == "metadata" else f"/{target.verb}"
            more = {
                "error.type": self._problem,
                "network.protocol.version": "1.1" if self.head.http_11 else "1.0",
                "http.request.body.size": self.body_bytes,
                "http.response.body.size": self._answer_bytes,
                "tidegate.server": grant.route.server if grant else target.server,
                "tidegate.model": target.model,
                "tidegate.version": self._version,
                "tidegate.replica": self._replica.name if self._replica else None,
                "tidegate.request_id": self.request_id.decode(),
            }
            route = f"{target.method.decode()} /v2/models/{{model}}{tail}"
            tracer.http_ended(span, route, status, seconds, more)

    def _log(self, status: int, seconds: float) -> None:
        target, grant = self.target, self._grant
        call = {
            "protocol": "http",
            "requestId": self.request_id.decode(),
            "verb": target.verb,
            "server": grant.route.server if grant else target.server,
            "model": target.model,
            "version": self._version,
            "status": status,
            "problem": self._problem,
            "principal": grant.identity.principal.name if grant else None,
            "replica": self._replica.name if self._replica else None,
            "seconds": round(seconds, 6),
            "bytesIn": self.body_bytes,
            "bytesOut": self._answer_bytes,
        }
        self.door.hall.call_log.say(status, {name: value for name, value in call.items() if value is not None})
