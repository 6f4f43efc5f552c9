"""A request at one replica: what is sent there, and its answer, handed back to the caller as it comes."""

import asyncio
import re
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

from ..concurrency import BULK_BYTES, Waiter
from ..forwarding import Forwarding
from ..kinds import UsageReader
from ..mirror import MirroredRequest, over_http
from ..problems import AGAIN_SECONDS, Problem, ProblemType
from ..shared_state import SharedState
from ..targets import Target
from ..told_errors import MOST_ERROR, UNREADABLE, unpacked
from ..upstream.connection import Connection
from ..upstream.replica import Replica
from .answers import STATUS_LINES
from .body import MOST_UNSENT, RequestBody
from .caller import Caller
from .events import ErrorEvents

_OF_THE_BODY = (b"content-length:", b"content-encoding:")
_ACCEPTS_ENCODING = re.compile(rb"^accept-encoding:[^\n]*\n", re.IGNORECASE | re.MULTILINE)
BULK = BULK_BYTES // 2  # Bytes that go on at once, after which others have their turn: few more are read of a stream.
LONG_BODY = 1024 * 1024  # Bytes of a body that may itself be why a server did not take it.
VERSION_HEADER = b"\r\ntidegate-model-version: "


class Sent(Waiter, Protocol):
    """What a forwarding over HTTP needs of the request that it sends."""

    shared: SharedState
    http_11: bool
    passed: bytes
    target: Target
    body: RequestBody
    keep_alive: bool
    request_id: bytes
    caller: Caller

    def fail(self, problem: Problem) -> None:
        """End the request with a problem."""

    def finish(self, status: int, now: float) -> None:
        """End the request: its answer is whole."""

    def stream_broke(self) -> None:
        """End the request: its stream of events tells an error, or ends before its end."""

    def failed_at(self, replica: Replica, reason: str) -> None:
        """Send it to another replica, or end it: this one gives no answer, or no more of it."""

    def replica_lacks(self) -> None:
        """Send it to another replica, or hand the answer on: this one may have said that it lacks the model."""


@dataclass(slots=True, eq=False, repr=False)
class HttpForwarding(Forwarding):
    """Sends its request over a connection, and hands the answer on; the connection calls it, as its `receiver`."""

    _owner: Sent
    connection: Connection | None = None  # To the replica, until the answer is whole.
    began: bool = False  # Whether the answer has begun.
    size: int = 0  # Bytes of the answer's body so far.
    _reply: list[bytes] = field(default_factory=list)
    _status: int = 0
    _chunked: bool = False
    _error_head: bytes | None = None  # Of an error, which is handed on when it is whole.
    _is_held: bool = False  # Whether the caller takes the answer slower than it comes.
    _is_bulk: bool = False  # Whether much of it came at once, and others have their turn before more is read.
    usage: UsageReader | None = None  # What the answer says that was used, where that is told.
    _events: ErrorEvents | None = None  # Of a stream of events.
    _is_broken: bool = False  # Whether one of them tells an error.
    _copy: MirroredRequest | None = None  # What a candidate gets of the request, if it is one of its share.

    # --- to the replica
    async def connection_to(self, replica: Replica) -> Connection:
        """Return a new connection; raises OSError. The replica has that, too, of a call that ends meanwhile."""
        self.is_cut = True
        try:
            return await self.door(replica).connect(self._shared.settings.connect_timeout_seconds)
        finally:
            self.is_cut = False

    def send(self, replica: Replica, connection: Connection) -> None:
        """Put the head before what there is of the body, and send it on later, over a connection to a replica."""
        self.sent_to(replica)
        self.is_cut = False
        self.connection = connection
        connection.receiver = self
        request = self._owner
        route, target = self.grant.route, request.target
        first, body, passed = route.first_lines(target, self.version), request.body, request.passed
        asks_for_usage = False
        if route.tells_usage:
            asks_for_usage = bool(target.asks_for_usage)
            if asks_for_usage or self.grant.tokens is not None:  # the usage must be readable: nothing unpacks it
                passed = _ACCEPTS_ENCODING.sub(b"", passed)
            assert route.kind.usage_of is not None
            self.usage = route.kind.usage_of(target.streams, asks_for_usage)
        head = (first, passed, b"x-request-id: ", request.request_id)
        if route.mirror is not None and target.mirrored and not self.tried:
            instead = route.first_lines(target, route.candidate)
            mirror = request.shared.mirror
            send = partial(over_http, mirror.connect_seconds, instead, len(first))
            is_of_sequence = target.may_be_of_sequence and (self.sequence is not None or None)
            self._copy = mirror.begin(route, self.version, is_of_sequence, send)
            if self._copy is not None and body.of_version is not None:  # what goes by has the version's name in it
                body.choose(route.name, route.candidate)
                for part in (*head, body.framing(), *body.parts):
                    self._copy.add(part, False)
                self._copy.add(b"", True)
                self._copy = None
        if body.of_version is not None:
            body.choose(route.name, self.version, asks_for_usage)
            if body.received > MOST_UNSENT:
                body.of_version = None  # which holds all of it
        body.parts[:0] = (*head, body.framing())

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""
        body, connection = self._owner.body, self.connection
        if connection is None:
            return
        if body.chunked:
            body.end_chunk()
        if body.parts:
            if body.received > MOST_UNSENT and body.gathers:  # joined, it would be there twice
                connection.transport.writelines(body.parts)
                if self._copy is not None:
                    for part in body.parts:
                        self._copy.add(part, body.complete and part is body.parts[-1])
                body.parts.clear()
            else:
                data = b"".join(body.parts)
                body.parts.clear()
                connection.transport.write(data)
                if self._copy is not None:
                    self._copy.add(data, body.complete)
            if body.booking is not None and body.of_version is None:
                body.ease(connection.transport.get_write_buffer_size())

    # --- from the replica
    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Hand the status and the headers on."""
        self._status = status
        assert self.replica is not None
        if self.lease is not None or self.replica.breaker.failures:
            self.answered()
        self._error_head = None
        if status >= 400:
            self._error_head, self._reply, self.size = head, [STATUS_LINES[status]], 0
            return
        body = self._owner.body
        if body.of_version is not None and self.connection is not None:
            body.of_version = None
            if body.booking is not None:
                body.ease(self.connection.transport.get_write_buffer_size())
        if length is None and self._owner.target.streams:
            self._events = ErrorEvents(self._plain_event)
        self._begin(head, length)

    def _begin(self, head: bytes, length: int | None) -> None:
        self.began = True
        request = self._owner
        if not request.body.complete or request.shared.draining:
            request.keep_alive = False
        reply = [STATUS_LINES[self._status], head, b"x-request-id: ", request.request_id]
        if self.version is not None:
            reply += (VERSION_HEADER, self.version.encode())
        if length is None:
            if request.http_11:
                self._chunked = True
                reply.append(b"\r\ntransfer-encoding: chunked")
            else:
                request.keep_alive = False
        reply.append(b"\r\n\r\n" if request.keep_alive else b"\r\nconnection: close\r\n\r\n")
        self._reply = reply

    def answer_data(self, data: bytes) -> None:
        """Hand a part of the body on."""
        if self._error_head is not None:
            if self.size < MOST_ERROR:
                self._reply.append(data[: MOST_ERROR - self.size])
            self.size += len(data)
            return
        if self._events is not None:
            data = self._events.feed(data)
        if self.usage is not None:
            data = self.usage.feed(data)
        if self._chunked:
            self._add(data)
        else:
            self.size += len(data)
            self._reply.append(data)

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
        request, version, now = self._owner, self.version, monotonic()
        self._status, self.size, self.began, self._error_head = status, length, True, None
        if self.lease is not None or self.replica.breaker.failures:  # type: ignore[union-attr]
            self.answered()
        body = request.body
        body.of_version = None
        self._leave_connection(now)
        if not body.complete or request.shared.draining:
            request.keep_alive = False
        end = b"\r\n\r\n" if request.keep_alive else b"\r\nconnection: close\r\n\r\n"
        if version is not None:
            end = VERSION_HEADER + version.encode() + end
        parts = STATUS_LINES[status], head, b"x-request-id: ", request.request_id, end, data
        request.caller.write_out(b"".join(parts))
        request.finish(status, now)

    def _leave_connection(self, now: float) -> None:
        """Keep the connection for the next call, if it can have one."""
        connection, body, replica = self.connection, self._owner.body, self.replica
        assert connection is not None
        assert replica is not None
        if self._is_bulk:
            self._read_more()
        connection.receiver = self.connection = None
        if connection.keep and body.complete and not body.parts:
            (replica if self.lease is None else self.door(replica)).give(connection, now)
        else:
            connection.close()

    def answer_ended(self) -> None:
        """Hand the end on, and keep the connection for the next call."""
        request, now = self._owner, monotonic()
        self._leave_connection(now)
        if self._error_head is not None and self._says_lost():
            request.replica_lacks()
        else:
            self.end_answer(now)

    def end_answer(self, now: float) -> None:
        """Hand the end on of what is whole."""
        request = self._owner
        if self._error_head is not None:
            body, lines = b"".join(self._reply[1:]), [line for line in self._error_head.split(b"\r\n") if line]
            packed = (line.lower() for line in lines if line.lower().startswith(b"content-encoding:"))
            if body and any(line.partition(b":")[2].strip() != b"identity" for line in packed):
                body = unpacked(body) or UNREADABLE
            body = self._plain_error(body)
            lines = [line for line in lines if not line.lower().startswith(_OF_THE_BODY)]
            self.size, self._error_head = 0, None
            self._begin(b"\r\n".join([*lines, b"content-length: %d\r\n" % len(body)]), len(body))
            self._add(body)
        if self._events is not None:
            self._add(self._events.end())
        if self.usage is not None:
            self._add(self.usage.end())
        if self._chunked:
            self._reply.append(b"0\r\n\r\n")
        request.caller.write_out(b"".join(self._reply))
        if self._events is not None and (self._is_broken or (self.usage is not None and self.usage.breaks_off())):
            request.stream_broke()
        else:
            request.finish(self._status, now)

    def count_usage(self) -> None:
        """Count what was used: for the caller's limit, where that is not told, about as many tokens as it may have
        been. That guess is no upper bound."""
        if self.usage is None or self._status >= 400 or not (self._status or self.is_cut):
            return
        route, principal = self.grant.route, self.grant.identity.principal
        if route.too_long is not None and self._status and self._owner.body.received >= route.too_long:
            route.too_long = None  # its length was not why
        if (told := self.usage.told()) is not None:
            self._shared.meter.used(route.server, route.name, principal.source, told)
        if self.grant.tokens is not None:
            self.grant.tokens.spend(sum(told or (self.usage.estimated(self._owner.body.received, self.size),)))

    async def look_elsewhere(self) -> Replica | None:
        """Return another replica, if this one lacks the model and the request can be sent again; else hand its answer
        on. Raises Problem (busy) where that would tell of a model that there is that there is none, or where its lease
        is on what is not there."""
        route, replica = self.grant.route, self.replica
        assert replica is not None
        if await route.kind.lacks(self._status, self.pool, self.door(replica), route.name, self.version):
            if self.lease is not None:
                raise self.lost()
            size, other = self._owner.body.received, None
            if size < LONG_BODY or self._status == 404:
                other = self.elsewhere(replica)
            else:  # its length may be why, and another replica would fail of it, too
                if route.too_long is not None and size >= route.too_long:
                    why = f"The inference server did not take a request of {size} bytes, again: send a shorter one."
                    raise Problem(ProblemType.TOO_LONG, why, replica=replica.name)
                route.too_long = size
            if other is not None and self._owner.body.of_version is not None:
                self.leave_replica(monotonic())
                return other
            if self._status != 503:  # which says that it may be had again, and why not now
                why = f"No inference server has the model {route.name} just now; it may be back soon."
                raise Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="lost", replica=replica.name)
        self.end_answer(monotonic())
        return None

    def _says_lost(self) -> bool:
        """Tell whether the replica may have lost the model that it was to have; no error is handed on before."""
        route = self.grant.route
        is_to_have = self.may_be_lost() if self.lease is not None else route.pool.leases is None and not self.looks
        return is_to_have and route.kind.says_lost(self._status, b"".join(self._reply))

    def _plain_error(self, body: bytes) -> bytes:
        body, self.error = self.grant.route.kind.plain_error(body)
        return body

    def _plain_event(self, body: bytes) -> bytes:
        self._is_broken = True
        return self._plain_error(body)

    def answer_failed(self, reason: str) -> None:
        """Learn that there will be no answer, or no more of it."""
        self.connection = None
        assert self.replica is not None
        self._owner.failed_at(self.replica, reason)

    def sending_paused(self, paused: bool) -> None:
        """Learn whether the replica takes the body slower than it comes."""
        body = self._owner.body
        body.hold(paused)
        if self.connection is None or not paused:
            body.ease(0)
            return
        try:
            body.book(self.connection.transport.get_write_buffer_size())
        except Problem as problem:
            asyncio.get_running_loop().call_soon(self._owner.fail, problem)

    # --- to the caller
    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""
        self._is_held = paused
        self._listen()

    def flush_answer(self) -> None:
        """Send on what has come so far."""
        if self._events is not None and self.connection is not None:
            self.connection.acknowledge()
        if self._reply and self._error_head is None:
            data = b"".join(self._reply)
            self._reply.clear()
            self._owner.caller.write_out(data)
            if len(data) >= BULK and not self._is_bulk:
                self._is_bulk = True
                self._listen()
                self._shared.bulk_reads.add(self._caller_count, self._read_more)

    def _read_more(self) -> None:
        self._is_bulk = False
        self._listen()

    def _listen(self) -> None:
        if self.connection is not None and not self.connection.transport.is_closing():
            transport = self.connection.transport
            (transport.pause_reading if self._is_bulk or self._is_held else transport.resume_reading)()

    def drop(self) -> None:
        """Hand nothing more on, and wait for no more of the answer."""
        self._reply.clear()
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.is_cut = True
