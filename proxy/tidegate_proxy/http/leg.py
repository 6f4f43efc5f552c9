"""A request at one replica: what is sent there, and its answer, handed back to the caller as it comes."""

from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

from ..concurrency import Waiter
from ..forwarding import Forwarding
from ..mirror import MirroredRequest, over_http
from ..problems import Problem
from ..shared_state import SharedState
from ..targets import Target
from ..upstream.connection import Connection
from ..upstream.replica import Replica
from .answers import STATUS_LINES
from .body import RequestBody
from .caller import Caller

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

    def failed_at(self, replica: Replica, reason: str) -> None:
        """Send it to another replica, or end it: this one gives no answer, or no more of it."""


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
    _copy: MirroredRequest | None = None  # What a candidate gets of the request, if it is one of its share.

    # --- to the replica
    def send(self, replica: Replica, connection: Connection) -> None:
        """Put the head before what there is of the body, and send it on later, over a connection to a replica."""
        self.sent_to(replica)
        self.connection = connection
        connection.receiver = self
        request = self._owner
        route, target = self.grant.route, request.target
        first = route.first_lines(target, self.version)
        if route.mirror is not None and target.may_be_of_sequence:
            instead = route.first_lines(target, route.candidate)
            mirror = request.shared.mirror
            send = partial(over_http, mirror.connect_seconds, instead, len(first))
            is_of_sequence = self.sequence is not None or None
            self._copy = mirror.begin(route, self.version, is_of_sequence, send)
        request.body.parts[:0] = (first, request.passed, b"x-request-id: ", request.request_id, request.body.framing())

    def flush_request(self) -> None:
        """Send on what has come so far: no more is at hand."""
        body, connection = self._owner.body, self.connection
        if connection is None:
            return
        if body.chunked:
            body.end_chunk()
        if body.parts:
            data = b"".join(body.parts)
            body.parts.clear()
            connection.transport.write(data)
            if self._copy is not None:
                self._copy.add(data, body.complete)

    # --- from the replica
    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Hand the status and the headers on."""
        self._status = status
        self.began = True
        request = self._owner
        self.answered()
        if not request.body.complete or request.shared.draining:
            request.keep_alive = False
        reply = [STATUS_LINES[status], head, b"x-request-id: ", request.request_id]
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
        self.size += len(data)
        if self._chunked:
            self._reply += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._reply.append(data)

    def answer_ended(self) -> None:
        """Hand the end on, and keep the connection for the next call."""
        if self._chunked:
            self._reply.append(b"0\r\n\r\n")
        connection, request, now = self.connection, self._owner, monotonic()
        assert connection is not None
        assert self.replica is not None
        connection.receiver = self.connection = None
        if connection.keep and request.body.complete and not request.body.parts:
            self.replica.give(connection, now)
        else:
            connection.close()
        if self.lease is not None and self._says_lost():
            self._reply.clear()
            self.began = False
            request.fail(self.lost())
            return
        request.caller.transport.write(b"".join(self._reply))
        request.finish(self._status, now)

    def _says_lost(self) -> bool:
        """Tell whether the replica has lost the model that it was leased for, and nothing of that was handed on."""
        return (
            self.may_be_lost()
            and self._reply[:1] == [STATUS_LINES[self._status]]
            and self.grant.route.kind.says_lost(self._status, b"".join(self._reply))
        )

    def answer_failed(self, reason: str) -> None:
        """Learn that there will be no answer, or no more of it."""
        self.connection = None
        assert self.replica is not None
        self._owner.failed_at(self.replica, reason)

    def sending_paused(self, paused: bool) -> None:
        """Learn whether the replica takes the body slower than it comes."""
        self._owner.body.hold(paused)

    # --- to the caller
    def receiving_paused(self, paused: bool) -> None:
        """Learn whether the caller takes the answer slower than it comes."""
        if self.connection is not None:
            if paused:
                self.connection.transport.pause_reading()
            else:
                self.connection.transport.resume_reading()

    def flush_answer(self) -> None:
        """Send on what has come so far."""
        if self._reply:
            self._owner.caller.transport.write(b"".join(self._reply))
            self._reply.clear()

    def drop(self) -> None:
        """Hand nothing more on, and end what the replica does."""
        self._reply.clear()
        if self.connection is not None:
            self.connection.close()
            self.connection = None
