"""One call over HTTP: authorised, sent to a replica, and its response passed back as it arrives.

`start` → `_decide` → `_granted`, then the procedure of `forwarding` up to `send`. Then the replica's connection passes
the response to its `receiver`, which is this object.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic

from ..access.identity import Grant, Identity
from ..access.web_client import SENDER
from ..concurrency import BULK_BYTES
from ..forwarding import Forwarding, call_record, count_problem, no_whole_answer
from ..kinds import KINDS
from ..openai.usage import Usage
from ..problems import AGAIN_SECONDS, Problem, ProblemType, no_answer, still_loading
from ..shared_state import SharedState
from ..targets import Target
from ..telemetry.records import CLIENT_LEFT
from ..telemetry.traces import Span, http_parent
from ..upstream.connection import Connection
from ..upstream.replica import Replica
from .answers import STATUS_LINES, problem_answer, whole_answer
from .body import MOST_DRAINED, MOST_UNSENT, PASSING_BYTES, Caller
from .head import HeadedRequest

MOST_ERROR = 16 * 1024  # Bytes of an error response that are held to find out whether the replica lost the model.
BULK = BULK_BYTES // 2  # Bytes passed on at a time before other calls get a turn.
LONG_BODY = 1024 * 1024  # Bytes above which the length of a body can itself be why a server rejects it.
LONG_HEAD = 4096  # Bytes of headers to pass on. Longer ones are counted in the caller's memory.
VERSION_HEADER = b"\r\ntidegate-model-version: "
_ACCEPTS_ENCODING = re.compile(rb"^accept-encoding:[^\n]*\n", re.IGNORECASE | re.MULTILINE)
log = logging.getLogger(__name__)


class HttpRequest(HeadedRequest):
    """A call, created when its head is complete. The caller's connection feeds the body, the replica's the response."""

    __slots__ = (
        "_chunked", "_error_head", "_is_bulk", "_is_held", "_is_stream", "_problem", "_reply", "_size_before",
        "_span", "_status", "_task", "_whole", "began", "connection", "size", "usage",
    )  # fmt: skip

    # Set once the response has begun:
    _status: int
    _reply: list[bytes]  # Parts that are still to be written.
    _chunked: bool
    _error_head: tuple[bytes, int | None] | None  # Head and length of an error response that is held.
    _is_stream: bool  # Whether the response is a stream of events, which can take long.

    def __init__(self, caller: Caller, shared: SharedState, target: Target, started: float) -> None:
        Forwarding.__init__(self, shared)
        self.caller = caller
        self.target = target
        self.started = started
        self.response_complete = False
        self.connection: Connection | None = None  # To the replica, until the response is complete.
        self.began = False  # Whether the response has begun.
        self.size = 0  # Bytes of the response's body so far.
        self.usage: Usage | None = None  # Reads the usage that the response reports, if it does.
        self._is_held = False  # Whether the response is paused because the caller reads slowly.
        self._is_bulk = False  # Whether the response is paused because much arrived, so that other calls get a turn.
        self._problem: Problem | None = None  # The problem that ended the call, if any.
        self._span: Span | None = None  # Set if calls are traced.
        self._task: asyncio.Task[None] | None = None  # Runs what the call waits for, if anything.

    # --- from the caller
    def start(self) -> None:
        """Authorise and send the call, as far as that needs no waiting."""
        self._size_before = 0  # Bytes of the response when the deadline was last extended.
        self._whole: asyncio.Future[None] | None = None  # Done when the body is complete, if something waits for it.
        shared, target, length = self.shared, self.target, self.body.length
        shared.open_calls.add(self)
        if shared.tracer is not None:
            self._span, self.passed = shared.tracer.over_http(self.passed)
        try:
            if self.refusal is not None:
                self.keep_alive = False
                raise self.refusal
            if self.method != target.method:
                allow = target.method.decode()
                raise Problem(ProblemType.METHOD, f"This address accepts only {allow}.", allow=allow)
            if length is not None and length > shared.body_limit_bytes:
                raise self.body.too_long()
            if len(self.passed) > LONG_HEAD:
                self.body.book_head(len(self.passed))
            if not target.in_body:
                self._decide(shared.authorizer.known(self.credential, target.grant_key))
        except Exception as error:
            self._end_with(error)

    def refuse(self, problem: Problem) -> None:
        """End the call when it is its turn, because its body is invalid."""
        if self.caller.is_active(self):
            self.fail(problem)
        elif self.refusal is None:
            self.refusal = problem

    def take_body(self, data: bytes) -> None:
        if self.response_complete:
            return
        body = self.body
        size = body.received + len(data)
        if size <= PASSING_BYTES and not body.chunked:
            body.received = size
            body.parts.append(data)
        elif (problem := body.take(data, self.connection is not None)) is not None:
            self.refuse(problem)

    def end_body(self) -> None:
        body = self.body
        body.complete = True
        if self.response_complete:
            return
        if body.chunked:
            body.end_chunks()
        if body.gathers:
            if self._whole is not None and not self._whole.done():
                self._whole.set_result(None)
            elif self.target.in_body:
                self._find_sender()

    def _send_continue(self) -> None:
        if self.expects_continue and not self.body.complete:
            self.caller.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False

    def abandon(self) -> None:
        """End the call because its caller has disconnected. The replica's response is dropped."""
        if not self.response_complete:
            self.drop()
            self.finish(CLIENT_LEFT, monotonic())

    def expire(self) -> None:
        """End the call at its deadline. A stream that still moves continues, unless the caller set the deadline."""
        most, bound_is_own = self.shared.call_seconds, self.bound_is_own
        size = self.size if self.began else 0
        if self.target.streams and bound_is_own and size > self._size_before:
            self._size_before = size
            self.deadline = monotonic() + most
            return
        may_blame = bound_is_own and (self.body.complete or self.body.is_held)
        if may_blame and self.replica is not None and not self.began:
            self.count_failure(self.replica, "timeout")
        seconds = self.deadline - self.started
        self.fail(still_loading(seconds) if self.loading else Problem(ProblemType.DEADLINE, no_answer(seconds)))

    def replica_silent(self) -> None:
        """Retry a read-only call on another replica. Otherwise free the slot, because a response may still come."""
        if self.read_only:
            self.drop()
            self.answer_failed("no response")
        else:
            self.release_slot()

    # --- authorising
    def _find_sender(self) -> None:
        """Identify the caller, then read the body, which names the model."""
        identity = self.shared.authorizer.remembered(self.credential)
        try:
            if identity is None:
                self.later(self._identify)
            else:
                self._let_body_come(identity)
        except Exception as error:
            self._end_with(error)

    async def _identify(self) -> None:
        self._let_body_come(await self.shared.authorizer.identify(self.credential))

    def _let_body_come(self, identity: Identity) -> None:
        target, body = self.target, self.body
        if body.complete and body.received <= MOST_UNSENT:
            self.target, found = KINDS[target.kind].open_body(target, body.whole())
            body.opened(found)
            self._decide(self.shared.authorizer.granted(identity, self.target.grant_key))
            return
        body.set_principal(identity.in_flight)
        body.let_come()
        if body.complete:
            self.later(self._open_long_body)
        elif self.expects_continue:
            self._send_continue()

    def _decide(self, grant: Grant | None) -> None:
        """Continue with a cached grant, or get one."""
        if grant is None:
            self.later(self._authorize)
        else:
            self._granted(grant)

    async def _authorize(self) -> None:
        self._granted(await self.shared.authorizer.ask(self.credential, *self.target.grant_key))

    async def _open_long_body(self) -> None:
        """Parse a long body in a thread, one at a time, so that other calls proceed."""
        kind, target, body = KINDS[self.target.kind], self.target, self.body
        loop = asyncio.get_running_loop()
        opened = loop.run_in_executor(self.shared.reader, lambda: kind.open_body(target, body.whole()))
        self.target, found = await opened
        body.opened(found)
        self._decide(self.shared.authorizer.known(self.credential, self.target.grant_key))

    def _granted(self, grant: Grant) -> None:
        route, target, body = grant.route, self.target, self.body
        if route.names and (version := route.names.get(target.model)) is not None:
            self.target = target = replace(target, version=version)
        if self.expects_continue:
            self._send_continue()
        caller = grant.identity.in_flight
        if body.booking is None:
            body.holder = caller
        else:
            body.set_principal(caller)
        if self.caller.is_unknown:
            self.caller.set_principal(caller)
        if grant.tokens is not None and target.requests_usage is None:
            why = "Tokens are limited: `stream` must be true or false, and `stream_options` a single short object."
            raise Problem(ProblemType.MALFORMED, why)
        self.granted(
            grant,
            self.started,
            target.action == "inspect",
            target.needs_no_lease,
            target.version,
            target.may_be_of_sequence and route.must_know_sequence(target.version),
        )

    def must_find_sequence(self) -> bool:
        target = self.target
        return target.may_be_of_sequence and self._whole is None and self.route.must_know_sequence(target.version)

    async def find_sequence(self) -> None:
        """Find the sequence ID in the body, unless the model is known to have no sequences."""
        route = self.route
        if await route.sequences.find(self.shared.settings.connect_timeout_seconds) is False:
            return
        self._whole = asyncio.get_running_loop().create_future()
        if self.body.complete:
            self._whole.set_result(None)
        self.body.let_come()
        await self._whole
        self.body.choose(self.target.model, None)
        self.sequence = await route.kind.sequence_of(self.passed, self.body.unpacked)
        self.body.drop_unpacked()

    async def answer_without_lease(self) -> None:
        route = self.route
        answer = await route.kind.answer_without_lease(
            self.target, route.pool, self.deadline - monotonic(), self.bound_is_own
        )
        self.respond(answer.status, answer.media_type, answer.body)

    # --- to the replica
    def admitted(self) -> None:
        super().admitted()
        try:
            self.go_to_replica(True)
            self.flush_request()
        except Exception as error:
            self._end_with(error)

    def take(self, replica: Replica, now: float) -> Connection | None:
        return replica.take(now)

    def keep(self, connection: Connection) -> None:
        connection.replica.give(connection, monotonic())

    async def connect_to(self, replica: Replica) -> Connection:
        """Return a new connection. Raises OSError. A call that ends meanwhile keeps its slot for some seconds."""
        self.is_cut = True
        try:
            return await replica.connect(self.shared.settings.connect_timeout_seconds)
        finally:
            self.is_cut = False

    def send(self, replica: Replica, connection: Connection) -> None:
        """Send the head and the available body over a connection to a replica. The rest of the body follows later."""
        self.sent_to(replica)
        self.connection = connection
        connection.receiver = self
        route, target, body, passed = self.route, self.target, self.body, self.passed
        requests_usage = False
        if route.has_usage:
            requests_usage = bool(target.requests_usage)
            if requests_usage or (self.grant and self.grant.tokens):  # the usage must be readable, so not compressed
                passed = _ACCEPTS_ENCODING.sub(b"", passed)
            assert route.kind.usage_of is not None
            self._status = 0
            self.usage = route.kind.usage_of(target.streams, requests_usage)
        if body.of_version is not None:
            body.choose(route.name, self.version, requests_usage)
            if body.received > MOST_UNSENT:
                body.of_version = None  # it holds the whole body
        first = route.first_lines(target, self.version)
        body.parts[:0] = first, passed, b"x-request-id: ", self.request_id, body.framing()
        if body.is_held:
            body.hold(False)
        if self._task is not None:  # otherwise the caller's connection flushes after it has parsed the data
            self.flush_request()
        if self._is_held:  # the caller does not read an earlier response
            self._listen()

    def flush_request(self) -> None:
        """Send the buffered body, or count its memory if there is no connection yet."""
        body, connection = self.body, self.connection
        if connection is None:
            if self.target.in_body and not (self._task or body.gathers or self.response_complete):
                self._find_sender()
            elif body.received and body.booking is None and not self.response_complete and (problem := body.keep()):
                self.refuse(problem)
            connection = self.connection
            if connection is None:
                return
        if body.chunked:
            body.end_chunk()
        if body.parts:
            if body.received > MOST_UNSENT and body.gathers:  # joined, it would be in memory twice
                connection.transport.writelines(body.parts)
            else:
                connection.transport.write(b"".join(body.parts))
            body.parts.clear()
            if body.booking is not None and body.of_version is None:
                body.ease(connection.transport.get_write_buffer_size())

    # --- from the replica
    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Begin the response to the caller. An error response is held first."""
        self._status, self._error_head = status, None
        self._chunked = self._is_stream = False
        assert self.replica is not None
        if self.lease is not None or self.replica.breaker.failures:
            self.answered()
        if status >= 400:
            self._error_head, self._reply, self.size = (head, length), [], 0
            return
        body = self.body
        if body.of_version is not None and self.connection is not None:
            body.of_version = None
            if body.booking is not None:
                body.ease(self.connection.transport.get_write_buffer_size())
        if length is None and self.target.streams:
            self._is_stream = True
            if self.usage is None:  # Triton: its streams can report an error
                self.usage = Usage(True, False, ends=False)
        self._begin(head, length)

    def _begin(self, head: bytes, length: int | None) -> None:
        if not self.body.complete or self.shared.draining:
            self.keep_alive = False
        reply = [STATUS_LINES[self._status], head, b"x-request-id: ", self.request_id]
        if self.version is not None:
            reply += (VERSION_HEADER, self.version.encode())
        if length is None:
            if self.http_11:
                self._chunked = True
                reply.append(b"\r\ntransfer-encoding: chunked")
            else:
                self.keep_alive = False
        reply.append(b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n")
        self._reply, self.began = reply, True

    def answer_data(self, data: bytes) -> None:
        if self._error_head is not None:
            self._reply.append(data)
            self.size += len(data)
            if self.size > MOST_ERROR:
                self._begin_error()
            return
        if self.usage is not None and self._status < 400:
            data = self.usage.feed(data)
        self._add(data)

    def _begin_error(self) -> None:
        """Pass on an error response that was held."""
        assert self._error_head is not None
        (head, length), parts = self._error_head, self._reply
        self._error_head, self.size = None, 0
        self.error = self.route.kind.error_text(b"".join(parts))
        self._begin(head, length)
        for part in parts:
            self._add(part)

    def _add(self, data: bytes) -> None:
        self.size += len(data)
        if not self._chunked:
            self._reply.append(data)
        elif data:  # an empty chunk would end the body
            self._reply += (b"%x\r\n" % len(data), data, b"\r\n")

    def answer_came(self, status: int, head: bytes, length: int, data: bytes) -> None:
        """Pass on a complete response that arrived in one piece."""
        if status >= 400 or self.usage is not None:
            self.answer_began(status, head, length)
            self.answer_data(data)
            self.answer_ended()
            return
        body, version, now = self.body, self.version, monotonic()
        self.size = length
        body.of_version = None
        if self.lease is not None or self.replica.breaker.failures:  # type: ignore[union-attr]
            self.answered()
        self._leave_connection(now)
        if not body.complete or self.shared.draining:
            self.keep_alive = False
        end = b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n"
        if version is not None:
            end = VERSION_HEADER + version.encode() + end
        parts = STATUS_LINES[status], head, b"x-request-id: ", self.request_id, end, data
        self.caller.write_out(b"".join(parts))
        self.finish(status, now)

    def _leave_connection(self, now: float) -> None:
        """Keep the connection for the next call if it can be reused."""
        connection, body = self.connection, self.body
        assert connection is not None
        if self._is_bulk:
            self._read_more()
        connection.receiver = self.connection = None
        if connection.keep and body.complete and not body.parts:
            connection.replica.give(connection, now)
        else:
            connection.close()

    def answer_ended(self) -> None:
        """End the response, or retry elsewhere if the replica lacks the model."""
        now = monotonic()
        self._leave_connection(now)
        if self._may_lack_model():
            self.later(self._look_elsewhere)
        else:
            self._end_answer(now)

    def answer_failed(self, reason: str) -> None:
        """Retry on another replica if possible, because this one closed the connection. Otherwise end the call."""
        replica, body = self.replica, self.body
        assert replica is not None
        self.connection = None
        self.count_failure(replica, "reset")
        bodiless = not body.length and not body.chunked  # the parts of a body that were sent are gone
        if not self.began and self.target.method == b"GET" and bodiless and not self.tried:
            self.leave_replica(monotonic())
            body.parts.clear()
            self.later(self.connect, self.next_replica(replica))
        else:
            self.fail(no_whole_answer(reason))

    def answer_broke(self, error: Exception) -> None:
        if self.response_complete:  # the next request of the caller might never begin
            self.caller.transport.abort()
        if self.began and self._reply[:1] == [STATUS_LINES[self._status]]:  # the head is not sent yet
            self.began = False
        self._end_with(error)

    def _end_answer(self, now: float) -> None:
        if self._error_head is not None:
            self._begin_error()
        if self.usage is not None:
            self._add(self.usage.end())
        if self._chunked:
            self._reply.append(b"0\r\n\r\n")
        whole, self._reply = b"".join(self._reply), []  # the connection keeps this request until the next: free it
        self.caller.write_out(whole)
        if self.usage is not None and self.usage.breaks_off():
            self._stream_broke()
        else:
            self.finish(self._status, now)

    def _count_usage(self) -> None:
        """Count the tokens used, in the metrics and in the caller's limit. If the server reports no usage, the limit
        counts an estimate, which is not an upper bound."""
        if self.usage is None or not self.route.has_usage or self._status >= 400 or not (self._status or self.is_cut):
            return
        route, principal = self.route, self.identity.principal
        if self._status and self._problem is None and self.replica is not None and self.replica.untaken:
            self._forget_untaken(self.replica)
        if (reported := self.usage.reported()) is not None:
            self.shared.meter.used(route.server, route.name, principal.source, reported)
        if self.grant is not None and self.grant.tokens is not None:
            self.grant.tokens.spend(sum(reported or (self.usage.estimated(self.body.received, self.size),)))

    async def _look_elsewhere(self) -> None:
        """Retry on another replica if this one lacks the model and the body is still here, else pass the response on.
        Raises Problem (busy) if the response would deny a model that exists, or if the model's lease is wrong."""
        route, replica = self.route, self.replica
        assert replica is not None
        if await self._lacks(self._status):
            if self.lease is not None:
                raise self.lost()
            size, other = self.body.received, None
            if size < LONG_BODY or self._status == 404:
                other = self.avoid(replica)
            else:  # the length can be the reason, and then another replica would fail too
                await self._note_untaken(replica, size)
            if other is not None and self.body.of_version is not None:
                self.leave_replica(monotonic())
                await self.connect(other)
                return
            if self._status != 503:  # a 503 already means that retrying can help, and gives the reason
                why = f"No inference server has the model {route.name} at the moment. Retry shortly."
                raise Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="lost", replica=replica.name)
        self._end_answer(monotonic())

    async def _note_untaken(self, replica: Replica, size: int) -> None:
        """Note that a replica rejected a body of this size. Raises Problem if it is up and rejected one before."""
        key, now = self.route.key, monotonic()
        is_listed = key in replica.untaken and not await self._lacks(404)
        least, since, takes_shorter = replica.untaken.get(key, (size + 1, now, False))
        is_again = size >= least and since < self.started  # failures at the same time count as one
        if is_again and now - since < self.shared.tunables.untaken_seconds and (takes_shorter or is_listed):
            does = "accepts shorter requests" if takes_shorter else "lists the model"
            why = f"The inference server {does}, but rejected one of {size} bytes twice. Send a shorter request."
            raise Problem(ProblemType.TOO_LONG, why, replica=replica.name)
        replica.untaken[key] = min(size, least), now, False

    def _forget_untaken(self, replica: Replica) -> None:
        """Note that a replica answered. A longer body that it rejected was too long, but this one is not."""
        least, since, _ = replica.untaken.pop(self.route.key, (0, 0.0, False))
        if self.body.received < least:
            replica.untaken[self.route.key] = least, since, True

    async def _lacks(self, status: int) -> bool:
        """Return whether the replica lacks the model. The server's kind checks that after such a status."""
        assert self.replica is not None
        return await self.route.kind.lacks(status, self.pool, self.replica, self.route.name, self.version)

    def _may_lack_model(self) -> bool:
        """Return whether the replica may have lost a model that it should have, according to a held error response."""
        if self._error_head is None:
            return False
        route = self.route
        is_to_have = self.may_be_lost() if self.lease is not None else route.pool.leases is None and not self.read_only
        return is_to_have and route.kind.reports_lost(self._status, b"".join(self._reply))

    def sending_paused(self, paused: bool) -> None:
        """Pause or resume the request's body, because the replica reads slowly or again."""
        body = self.body
        body.hold(paused)
        if self.connection is None or not paused:
            body.ease(0)
            return
        try:
            body.book(self.connection.transport.get_write_buffer_size())
        except Problem as problem:
            asyncio.get_running_loop().call_soon(self.fail, problem)

    # --- to the caller
    def receiving_paused(self, paused: bool) -> None:
        """Pause or resume the response, because the caller reads slowly or again."""
        self._is_held = paused
        self._listen()

    def flush_answer(self) -> None:
        if not self.began:
            return
        if self._is_stream and self.connection is not None:
            self.connection.acknowledge()
        if self._reply:
            data = b"".join(self._reply)
            self._reply.clear()
            self.caller.write_out(data)
            if len(data) >= BULK and not self._is_bulk:
                self._is_bulk = True
                self._listen()
                self.shared.bulk_reads.add(self._caller_count, self._read_more)

    def _read_more(self) -> None:
        self._is_bulk = False
        self._listen()

    def _listen(self) -> None:
        if self.connection is not None and not self.connection.transport.is_closing():
            transport = self.connection.transport
            (transport.pause_reading if self._is_bulk or self._is_held else transport.resume_reading)()

    def drop(self) -> None:
        self._reply = []
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.is_cut = True

    # --- the proxy's own responses, and the end
    def respond(self, status: int, media_type: str, body: bytes) -> None:
        if not self.body.complete or self.shared.draining:
            self.keep_alive = False
        self._write(whole_answer(status, media_type, body, self.request_id, keep_alive=self.keep_alive))
        self.finish(status, monotonic())

    def _write(self, answer: tuple[bytes, bytes]) -> None:
        head, body = answer[0], b"" if self.method == b"HEAD" else answer[1]
        self.size = len(body)
        self.caller.write_out(head + body)

    def fail(self, problem: Problem) -> None:
        """End the call with a problem. If the response has begun, only closing the connection can show that."""
        if self.response_complete:
            return
        self.drop()
        self._problem = problem.with_traceback(None)  # the traceback would keep every frame's objects alive
        count_problem(self.shared.meter, problem, self)
        if self.began:
            # The caller can detect a truncated body by its length or chunks. Without either, only by a reset.
            self.keep_alive = False
            if not self.http_11:
                self.caller.transport.abort()
        else:
            body = self.body
            left = (body.length or 0) - body.received
            if not body.complete and (body.chunked or left > MOST_DRAINED or self.expects_continue):
                self.keep_alive = False
            content = KINDS[self.target.kind].problem_body(problem, self.request_id.decode())
            self._write(problem_answer(problem, self.request_id, keep_alive=self.keep_alive, content=content))
        self.finish(problem.type.status, monotonic())

    def _stream_broke(self) -> None:
        """End the call as failed, although its response began with 200."""
        self._problem = problem = no_whole_answer("its stream reported an error, or ended before its last event")
        count_problem(self.shared.meter, problem, self)
        self.finish(problem.type.status, monotonic())

    def finish(self, status: int, now: float) -> None:
        """End the call: release and count everything."""
        self.response_complete = True
        shared, body, grant = self.shared, self.body, self.grant
        shared.open_calls.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if body.booking is not None:
            body.release()
        seconds = now - self.started
        called, waited = None, 0.0
        if grant is not None:
            self.give_back(now)
            if self.usage is not None:
                self._count_usage()
            if not self.read_only:  # calls for readiness and metadata are not work of the model
                route = self.route
                if (count := route.http_count) is None:
                    count = route.http_count = shared.meter.of_calls(route.server, route.name, "http")
                count.ended(status, seconds, body.received, self.size)
                called, waited = route.key, self.waited
            if shared.meter.most_callers:
                principal = grant.identity.principal
                shared.meter.called(principal.name, principal.source, "http", status)
        is_logged = shared.call_log.wants(status, now, called, seconds, waited, grant is None)
        if is_logged or (self._span is not None and self._span.sampled):
            self._record(status, seconds, is_logged)
        self.caller.ended(self)
        self.passed = b""  # the connection keeps this request until the next one: free the memory

    def _record(self, status: int, seconds: float, is_logged: bool) -> None:
        target, size = (self.target.server, self.target.model), (self.body.received, self.size)
        verb, shared, trace = self.target.verb, self.shared, http_parent(self.passed)
        record = call_record(self, "http", self.request_id, verb, target, self._problem, seconds, size, trace)
        if is_logged:
            shared.call_log.write(status, {"status": status, **record})
        if self._span is not None and shared.tracer is not None:
            version = "1.1" if self.http_11 else "1.0"
            shared.tracer.http_ended(self._span, self.target, version, status, record)

    # --- waiting
    def later(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(work, *given))

    async def _work(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        SENDER.set(self.caller)
        try:
            await work(*given)
        except Exception as error:
            self._end_with(error)

    def _end_with(self, error: Exception) -> None:
        if not isinstance(error, Problem):
            log.error("request %s failed with an internal error", self.request_id.decode(), exc_info=error)
            why = "Internal error. Details are in the proxy's log under this request ID."
            error = Problem(ProblemType.INTERNAL, why)
        self.fail(error)
