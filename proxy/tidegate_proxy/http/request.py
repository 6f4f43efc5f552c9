"""One call over HTTP: decided, sent to a replica, and its answer handed back as it comes.

`start` → `_decide` → `_granted`, then the procedure of `forwarding` up to `send`; then a connection to the replica
hands it the answer, as its `receiver`.
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

MOST_ERROR = 16 * 1024  # Bytes of an error that are held to find out whether the replica lost the model.
BULK = BULK_BYTES // 2  # Bytes that go on at once, after which others have their turn: few more are read of a stream.
LONG_BODY = 1024 * 1024  # Bytes of a body that may itself be why a server did not take it.
LONG_HEAD = 4096  # Bytes of headers that go on; more are counted as held.
VERSION_HEADER = b"\r\ntidegate-model-version: "
_ACCEPTS_ENCODING = re.compile(rb"^accept-encoding:[^\n]*\n", re.IGNORECASE | re.MULTILINE)
log = logging.getLogger(__name__)


class HttpRequest(HeadedRequest):
    """Begins when the request's head is there. Its caller hands it the body; a connection hands it the answer."""

    __slots__ = (
        "_chunked", "_error_head", "_is_bulk", "_is_held", "_is_stream", "_problem", "_reply", "_size_before",
        "_span", "_status", "_task", "_whole", "began", "connection", "size", "usage",
    )  # fmt: skip

    # Once its answer has begun:
    _status: int
    _reply: list[bytes]  # What is to be written of it.
    _chunked: bool
    _error_head: tuple[bytes, int | None] | None  # Head and length of an error whose beginning is held.
    _is_stream: bool  # Whether it may take long: a stream of events.

    def __init__(self, caller: Caller, shared: SharedState, target: Target, started: float) -> None:
        Forwarding.__init__(self, shared)
        self.caller = caller
        self.target = target
        self.started = started
        self.response_complete = False
        self.connection: Connection | None = None  # To the replica, until the answer is whole.
        self.began = False  # Whether the answer has begun.
        self.size = 0  # Bytes of the answer's body so far.
        self.usage: Usage | None = None  # What the answer reports as used, if it does.
        self._is_held = False  # Whether the caller takes the answer slower than it comes.
        self._is_bulk = False  # Whether much of it came at once, and others have their turn before more is read.
        self._problem: Problem | None = None  # What ended it, if it is one.
        self._span: Span | None = None  # Where calls are traced.
        self._task: asyncio.Task[None] | None = None  # In which something is waited for, if it is.

    # --- from the caller
    def start(self) -> None:
        """Decide and send, as far as that goes without waiting."""
        self._size_before = 0  # Bytes of the answer when its time was last prolonged.
        self._whole: asyncio.Future[None] | None = None  # Done when the body is whole, if that is waited for.
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
                raise Problem(ProblemType.METHOD, f"This address takes {allow}.", allow=allow)
            if length is not None and length > shared.body_limit_bytes:
                raise self.body.too_long()
            if len(self.passed) > LONG_HEAD:
                self.body.book_head(len(self.passed))
            if not target.in_body:
                self._decide(shared.authorizer.known(self.credential, target.asked))
        except Exception as error:
            self._end_with(error)

    def refuse(self, problem: Problem) -> None:
        """End it, in its turn, because its body is none."""
        if self.caller.is_active(self):
            self.fail(problem)
        elif self.refusal is None:
            self.refusal = problem

    def take_body(self, data: bytes) -> None:
        """Take a part of the request's body."""
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
        """Learn that the request is whole."""
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

    def _ask_for_body(self) -> None:
        if self.expects_continue and not self.body.complete:
            self.caller.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False

    def abandon(self) -> None:
        """End it: the caller has left. What a replica does for it is dropped."""
        if not self.response_complete:
            self.drop()
            self.finish(CLIENT_LEFT, monotonic())

    def expire(self) -> None:
        """End it: its time is up. A stream that moves goes on, unless the caller said when it is to end."""
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
        """Go to another replica, if it is read-only; else give its slot back: it may still be answered."""
        if self.read_only:
            self.drop()
            self.answer_failed("there is no answer")
        else:
            self.release_slot()

    # --- deciding
    def _find_sender(self) -> None:
        """Read a body that says what is asked, once it is known who sends it."""
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
            self._decide(self.shared.authorizer.granted(identity, self.target.asked))
            return
        body.set_principal(identity.in_flight)
        body.gathers = True
        if body.is_held:
            body.hold(False)
        if body.complete:
            self.later(self._open_long_body)
        elif self.expects_continue:
            self._ask_for_body()

    def _decide(self, grant: Grant | None) -> None:
        """Go on with what is granted, or ask for it."""
        if grant is None:
            self.later(self._ask)
        else:
            self._granted(grant)

    async def _ask(self) -> None:
        self._granted(await self.shared.authorizer.ask(self.credential, *self.target.asked))

    async def _open_long_body(self) -> None:
        """Read what is asked in a long body: in a thread, one after the other, while other calls go on."""
        kind, target, body = KINDS[self.target.kind], self.target, self.body
        loop = asyncio.get_running_loop()
        opened = loop.run_in_executor(self.shared.reader, lambda: kind.open_body(target, body.whole()))
        self.target, found = await opened
        body.opened(found)
        self._decide(self.shared.authorizer.known(self.credential, self.target.asked))

    def _granted(self, grant: Grant) -> None:
        route, target, body = grant.route, self.target, self.body
        if route.names and (version := route.names.get(target.model)) is not None:
            self.target = target = replace(target, version=version)
        if self.expects_continue:
            self._ask_for_body()
        caller = grant.identity.in_flight
        if body.booking is None:
            body.holder = caller
        else:
            body.set_principal(caller)
        if self.caller.is_unknown:
            self.caller.set_principal(caller)
        if grant.tokens is not None and target.asks_for_usage is None:
            why = "Where tokens are limited, `stream` is true or false, and `stream_options` one short object."
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
        """Tell whether the request may go astray unless it is known which sequence it is of."""
        target = self.target
        return target.may_be_of_sequence and self._whole is None and self.route.must_know_sequence(target.version)

    async def find_sequence(self) -> None:
        """Learn which sequence it is of, unless the model knows none; it may know them where that cannot be learned."""
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
        """Answer what is only looked at."""
        route = self.route
        answer = await route.kind.answer_without_lease(
            self.target, route.pool, self.deadline - monotonic(), self.bound_is_own
        )
        self.say(answer.status, answer.media_type, answer.body)

    # --- to the replica
    def admitted(self) -> None:
        """Go on: there is a slot."""
        super().admitted()
        try:
            self.go_to_replica(True)
            self.flush_request()
        except Exception as error:
            self._end_with(error)

    def take(self, replica: Replica, now: float) -> Connection | None:
        """Return an idle connection to a replica; None without one."""
        return replica.take(now)

    def keep(self, connection: Connection) -> None:
        """Leave a connection that is not used to the next call."""
        connection.replica.give(connection, monotonic())

    async def connect_to(self, replica: Replica) -> Connection:
        """Return a new connection; raises OSError. The replica has that, too, of a call that ends meanwhile."""
        self.is_cut = True
        try:
            return await replica.connect(self.shared.settings.connect_timeout_seconds)
        finally:
            self.is_cut = False

    def send(self, replica: Replica, connection: Connection) -> None:
        """Put the head before what there is of the body, and send it on later, over a connection to a replica."""
        self.sent_to(replica)
        self.connection = connection
        connection.receiver = self
        route, target, body, passed = self.route, self.target, self.body, self.passed
        asks_for_usage = False
        if route.tells_usage:
            asks_for_usage = bool(target.asks_for_usage)
            if asks_for_usage or (self.grant and self.grant.tokens):  # the usage must be readable: nothing unpacks it
                passed = _ACCEPTS_ENCODING.sub(b"", passed)
            assert route.kind.usage_of is not None
            self._status = 0
            self.usage = route.kind.usage_of(target.streams, asks_for_usage)
        if body.of_version is not None:
            body.choose(route.name, self.version, asks_for_usage)
            if body.received > MOST_UNSENT:
                body.of_version = None  # which holds all of it
        first = route.first_lines(target, self.version)
        body.parts[:0] = first, passed, b"x-request-id: ", self.request_id, body.framing()
        if body.is_held:
            body.hold(False)
        if self._task is not None:  # otherwise the caller's connection flushes when it has read all that is at hand
            self.flush_request()

    def flush_request(self) -> None:
        """Go on with what has come so far, or book it: no more is at hand."""
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
            if body.received > MOST_UNSENT and body.gathers:  # joined, it would be there twice
                connection.transport.writelines(body.parts)
                body.parts.clear()
            else:
                data = b"".join(body.parts)
                body.parts.clear()
                connection.transport.write(data)
            if body.booking is not None and body.of_version is None:
                body.ease(connection.transport.get_write_buffer_size())

    # --- from the replica
    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Hand the status and the headers on."""
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
            if self.usage is None:  # of Triton, whose streams may report an error
                self.usage = Usage(True, False, ends=False)
        self._begin(head, length)

    def _begin(self, head: bytes, length: int | None) -> None:
        self.began = True
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
        self._reply = reply

    def answer_data(self, data: bytes) -> None:
        """Hand a part of the body on."""
        if self._error_head is not None:
            self._reply.append(data)
            self.size += len(data)
            if self.size > MOST_ERROR:
                self._begin_error()
            return
        if self.usage is not None and self._status < 400:
            data = self.usage.feed(data)
        if self._chunked:
            self._add(data)
        else:
            self.size += len(data)
            self._reply.append(data)

    def _begin_error(self) -> None:
        """Hand on an error whose beginning was held."""
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
        elif data:  # an empty chunk would be the last
            self._reply += (b"%x\r\n" % len(data), data, b"\r\n")

    def answer_came(self, status: int, head: bytes, length: int, data: bytes) -> None:
        """Hand a whole answer on, which has come at once."""
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
        """Keep the connection for the next call, if it can have one."""
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
        """Hand the end on, and keep the connection for the next call; or go elsewhere where the model is not here."""
        now = monotonic()
        self._leave_connection(now)
        if self._says_lost():
            self.later(self._look_elsewhere)
        else:
            self._end_answer(now)

    def answer_failed(self, reason: str) -> None:
        """Send it to another replica, or end it: this one gives no answer, or no more of it."""
        replica, body = self.replica, self.body
        assert replica is not None
        self.connection = None
        self.count_failure(replica, "reset")
        bodiless = not body.length and not body.chunked  # what came of a body is gone
        if not self.began and self.target.method == b"GET" and bodiless and not self.tried:
            self.leave_replica(monotonic())
            body.parts.clear()
            self.later(self.connect, self.next_replica(replica))
        else:
            self.fail(no_whole_answer(reason))

    def _end_answer(self, now: float) -> None:
        """Hand the end on of what is whole."""
        if self._error_head is not None:
            self._begin_error()
        if self.usage is not None:
            self._add(self.usage.end())
        if self._chunked:
            self._reply.append(b"0\r\n\r\n")
        whole, self._reply = b"".join(self._reply), []  # its connection knows the request until the next
        self.caller.write_out(whole)
        if self.usage is not None and self.usage.breaks_off():
            self._stream_broke()
        else:
            self.finish(self._status, now)

    def _count_usage(self) -> None:
        """Count what was used: for the caller's limit, where that is not told, about as many tokens as it may have
        been. That guess is no upper bound."""
        if self.usage is None or not self.route.tells_usage or self._status >= 400 or not (self._status or self.is_cut):
            return
        route, principal = self.route, self.identity.principal
        if self._status and self._problem is None and self.replica is not None:
            untaken = self.replica.untaken
            if untaken and (not_taken := untaken.pop(route.key, None)) and self.body.received < not_taken[0]:
                untaken[route.key] = not_taken[0], True
        if (told := self.usage.told()) is not None:
            self.shared.meter.used(route.server, route.name, principal.source, told)
        if self.grant is not None and self.grant.tokens is not None:
            self.grant.tokens.spend(sum(told or (self.usage.estimated(self.body.received, self.size),)))

    async def _look_elsewhere(self) -> None:
        """Go to another replica, if this one lacks the model and the request can be sent again; else hand its answer
        on. Raises Problem (busy) where that would tell of a model that there is that there is none, or where its lease
        is on what is not there."""
        route, replica = self.route, self.replica
        assert replica is not None
        if await self._lacks(self._status):
            if self.lease is not None:
                raise self.lost()
            size, other = self.body.received, None
            if size < LONG_BODY or self._status == 404:
                other = self.avoid(replica)
            else:  # its length may be why, and another replica would fail of it, too
                least, is_too_long = replica.untaken.get(route.key, (size + 1, False))
                if size >= least and (is_too_long or not await self._lacks(404)):  # it lists the model, so it is up
                    why = f"The inference server takes shorter requests, but not one of {size} bytes, again."
                    raise Problem(ProblemType.TOO_LONG, f"{why} Send a shorter one.", replica=replica.name)
                replica.untaken[route.key] = min(size, least), False
            if other is not None and self.body.of_version is not None:
                self.leave_replica(monotonic())
                await self.connect(other)
                return
            if self._status != 503:  # which says that it may be had again, and why not now
                why = f"No inference server has the model {route.name} just now; it may be back soon."
                raise Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="lost", replica=replica.name)
        self._end_answer(monotonic())

    async def _lacks(self, status: int) -> bool:
        """Return whether the replica lacks the model, as the kind of its server finds out after such a status."""
        assert self.replica is not None
        return await self.route.kind.lacks(status, self.pool, self.replica, self.route.name, self.version)

    def _says_lost(self) -> bool:
        """Tell whether the replica may have lost the model that it was to have; no error is handed on before."""
        if self._error_head is None:
            return False
        route = self.route
        is_to_have = self.may_be_lost() if self.lease is not None else route.pool.leases is None and not self.read_only
        return is_to_have and route.kind.says_lost(self._status, b"".join(self._reply))

    def sending_paused(self, paused: bool) -> None:
        """Learn whether the replica takes the body slower than it comes."""
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
        """Learn whether the caller takes the answer slower than it comes."""
        self._is_held = paused
        self._listen()

    def flush_answer(self) -> None:
        """Send on what has come so far."""
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
        """Hand nothing more on, and wait for no more of the answer."""
        self._reply = []
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.is_cut = True

    # --- what the proxy itself says, and the end
    def say(self, status: int, media_type: str, body: bytes) -> None:
        """Answer with what is at hand."""
        if not self.body.complete or self.shared.draining:
            self.keep_alive = False
        self._write(whole_answer(status, media_type, body, self.request_id, keep_alive=self.keep_alive))
        self.finish(status, monotonic())

    def _write(self, answer: tuple[bytes, bytes]) -> None:
        head, body = answer[0], b"" if self.method == b"HEAD" else answer[1]
        self.size = len(body)
        self.caller.write_out(head + body)

    def fail(self, problem: Problem) -> None:
        """End it with a problem; where an answer has begun, only the end of the connection can tell."""
        if self.response_complete:
            return
        self.drop()
        self._problem = problem.with_traceback(None)  # which knows all that it passed, for as long as it is known
        count_problem(self.shared.meter, problem, self)
        if self.began:
            # A body with a length or in chunks is seen to be cut short when the connection just ends; another is not.
            self.keep_alive = False
            if not self.http_11:
                self.caller.transport.abort()
        else:
            body = self.body
            left = (body.length or 0) - body.received
            if not body.complete and (body.chunked or left > MOST_DRAINED or self.expects_continue):
                self.keep_alive = False
            told = KINDS[self.target.kind].problem_body(problem, self.request_id.decode())
            self._write(problem_answer(problem, self.request_id, keep_alive=self.keep_alive, told=told))
        self.finish(problem.type.status, monotonic())

    def _stream_broke(self) -> None:
        """End it as failed, though its answer began with 200."""
        self._problem = problem = no_whole_answer("its stream reported an error, or ended before its last event")
        count_problem(self.shared.meter, problem, self)
        self.finish(problem.type.status, monotonic())

    def finish(self, status: int, now: float) -> None:
        """End it: give back and count everything."""
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
            if not self.read_only:  # readiness and metadata are no work of the model
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
            self._tell(status, seconds, is_logged)
        self.caller.ended(self)
        self.passed = b""  # its connection knows it until the next

    def _tell(self, status: int, seconds: float, is_logged: bool) -> None:
        asked, size = (self.target.server, self.target.model), (self.body.received, self.size)
        verb, shared, trace = self.target.verb, self.shared, http_parent(self.passed)
        said = call_record(self, "http", self.request_id, verb, asked, self._problem, seconds, size, trace)
        if is_logged:
            shared.call_log.say(status, {"status": status, **said})
        if self._span is not None and shared.tracer is not None:
            version = "1.1" if self.http_11 else "1.0"
            shared.tracer.http_ended(self._span, self.target, version, status, said)

    # --- what is waited for
    def later(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        """Go on with work that waits for something."""
        self._task = asyncio.get_running_loop().create_task(self._work(work, *given))

    async def _work(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        SENDER.set(self.caller)
        try:
            await work(*given)
        except Exception as error:
            self._end_with(error)

    def _end_with(self, error: Exception) -> None:
        if not isinstance(error, Problem):
            log.error("request %s met a defect", self.request_id.decode(), exc_info=error)
            error = Problem(ProblemType.INTERNAL, "It is in the log, under this request's id.")
        self.fail(error)
