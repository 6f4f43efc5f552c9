"""The caller's side of a gRPC call: its response headers, messages and final status, and its deadline."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

from ..access.identity import Identity
from ..access.web_client import SENDER
from ..forwarding import Forwarding, count_problem
from ..guests import AccountedConnection
from ..headers import new_request_id
from ..http2.frames import CANCEL, ENHANCE_YOUR_CALM, encode_header
from ..http2.sending import Stream
from ..memory import Reservation
from ..problems import TWO_CREDENTIALS, Problem, ProblemType
from ..shared_state import SharedState
from ..upstream.replica import Replica
from .metadata import OK_HEADERS, RequestHeaders, problem_trailers, status_trailers
from .protobuf import framed

CALL_BYTES = 4096  # Memory of a call, in addition to its headers, messages and response.
IDLE_STREAM_SECONDS = 600.0  # Time that a stream may stay open while its caller sends nothing.


class Deadline:
    """The caller's deadline, or the proxy's limit of `most` seconds. Each message of a stream restarts that limit. `at`
    is the deadline in monotonic seconds. `last` is the latest deadline that the caller allows."""

    __slots__ = ("_most", "at", "is_own", "last", "started")

    def __init__(self, started: float, most: float, timeout: float | None, stream: bool = False) -> None:
        self.started = started
        self.last = float("inf") if timeout is None else started + timeout
        self.at = min(started + (IDLE_STREAM_SECONDS if stream else most), self.last)
        self.is_own = timeout is None or timeout >= most
        """Whether a timeout is the replica's failure: the caller's deadline is not shorter than the proxy's limit."""
        self._most = most

    @property
    def left(self) -> float:
        return self.at - monotonic()

    @property
    def seconds(self) -> float:
        """Seconds from the start of the call to its deadline."""
        return self.at - self.started

    def message_sent(self) -> None:
        """Restart the limit: a message of a stream was sent to the replica."""
        self.at = min(monotonic() + self._most, self.last)

    def message_received(self) -> None:
        """Restart the limit: a message of a stream was received from the replica."""
        self.at = min(monotonic() + max(self._most, IDLE_STREAM_SECONDS), self.last)


@dataclass(eq=False)
class UpstreamStatusError(Exception):
    """A replica responded with its own gRPC status, which is passed on to the caller unchanged."""

    block: bytes
    code: int


CANCELLED = 1  # The status that is counted if the caller disconnects. It is not sent.
log = logging.getLogger(__name__)


class CallerStream(Stream):
    """A caller's gRPC stream: sends headers, messages and status, and has a deadline. Open from `begin` on."""

    # Class defaults: they cost nothing in the calls that never change them.
    booking: Reservation  # The memory that is counted for the call.
    forwarding: Forwarding | None = None
    """The call's path to a replica, set when the first message is authorised. It has the version for the headers."""
    began = False
    done = False
    bytes_out = 0
    problem: Problem | None = None  # The problem that ended the call, if any.
    task: asyncio.Task[None] | None = None  # Its current or last task.

    def __init__(self, shared: SharedState, headers: RequestHeaders, started: float, streams: bool = False) -> None:
        self.shared = shared
        self.headers = headers
        self.request_id = headers.request_id or new_request_id()
        self.id_header = encode_header(b"x-request-id", self.request_id)
        self.time = Deadline(started, float(shared.settings.request_timeout_seconds), headers.seconds, streams)

    @property
    def deadline(self) -> float:
        return self.time.at

    @property
    def replica(self) -> Replica | None:
        return None if self.forwarding is None else self.forwarding.replica

    def begin(self, end: bool, guest: AccountedConnection) -> None:
        """Open the call on a connection. `end`: the request has no messages."""
        self.shared.open_calls.add(self)
        self._guest = guest
        identity = self.shared.authorizer.remembered(self.headers.credential)
        known = identity and Reservation(self.shared.memory.callers, identity.in_flight)
        self.booking = known or guest.books()
        try:
            if identity is not None:
                guest.set_principal(identity.in_flight)
            self.booking.set(CALL_BYTES + self.headers.size)
            if self.headers.credentials > 1:
                raise Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
        except Problem as problem:
            self.fail(problem)
        else:
            self.begun(identity is not None)
            if end:
                self.data_received(b"", True)

    def begun(self, _is_known: bool) -> None:
        """Continue after the headers. Their sender may not be identified yet."""

    def set_principal(self, identity: Identity) -> None:
        """Count the call's memory for the identified caller. Raises Problem."""
        self.booking.move(self.shared.memory.callers, identity.in_flight)
        self._guest.set_principal(identity.in_flight)

    def held_bytes(self) -> int:
        """Return how many bytes the proxy holds for the call, including the unread part of its response."""
        return CALL_BYTES + self.headers.size + self.unsent_held

    def hold(self) -> None:
        """Count the memory that the call holds now. Raises Problem."""
        self.booking.set(self.held_bytes())

    def ease(self) -> None:
        """Release memory that the call no longer holds."""
        self.booking.set(min(self.booking.size, self.held_bytes()))

    def headers_received(self, _: RequestHeaders, end: bool) -> None:
        """Process trailers, which end the request. The replica does not get them."""
        if end:
            self.data_received(b"", True)

    def reset_received(self, _code: int | None, _processed: bool) -> None:
        """End the call as cancelled, because its caller has reset the stream. The replica's response is dropped."""
        if not self.done:
            self._finish(CANCELLED)
        self.shared.open_calls.discard(self)
        self.booking.end()

    def drained(self) -> None:
        if self.done:
            self.shared.open_calls.discard(self)
            self.booking.end()
        else:
            self.ease()

    def expire(self) -> None:
        if self.done:  # the caller does not read the rest of its response
            self.shared.open_calls.discard(self)
            self.booking.end()
            self.connection.reset(self.number, CANCEL)
        else:
            self.fail(self.late())

    def replica_silent(self) -> None:
        """Free the slot: the replica no longer responds, but a response may still come."""
        if self.forwarding is not None:
            self.forwarding.release_slot()

    def late(self) -> Problem:
        """Return the problem for a call at its deadline."""
        return Problem(ProblemType.DEADLINE, "There was no response in time.")

    def leave(self) -> None:
        """End the call, because the proxy is stopping."""
        why = "The proxy is stopping. Retry: another replica of the proxy will accept the call."
        self.fail(Problem(ProblemType.BUSY, why, 0.0, reason="stopping"))

    def ended(self, _code: int) -> None:
        """Release the call's resources. The rest of the response, with this status, is being sent."""
        if self.task not in (None, asyncio.current_task(self.connection.loop)):
            self.task.cancel()

    def start(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        """Run work in a task. An exception ends the call."""
        self.task = self.connection.loop.create_task(self._run(work, *given))

    def worked(self) -> None:
        """Continue after such work."""

    async def _run(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        SENDER.set(self._guest)
        try:
            await work(*given)
            self.worked()
        except Problem as problem:
            self.fail(problem)
        except UpstreamStatusError as error:
            self.end(error.code, error.block)
        except Exception:
            self.defect()

    def answer_began(self, headers: bytes = OK_HEADERS) -> None:
        """Send the response headers to the caller, including the proxy's own."""
        self.began = True
        self.connection.send_headers(self, headers + self._own_headers())

    def answer_data(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self.connection.send_data(self, data)
        if self.unsent_bytes:
            try:
                self.hold()
            except Problem as problem:
                # The caller would not see a problem, because it does not read the data before it.
                self.problem = problem.with_traceback(None)
                count_problem(self.shared.meter, problem, self.forwarding)
                self.connection.reset(self.number, ENHANCE_YOUR_CALM)
                self.shared.memory.count_cut("answer")
                self._finish(problem.type.grpc_status)

    def reply(self, message: bytes, more: bytes = b"") -> None:
        """Send a response of one message. `more`: additional headers."""
        self.answer_began(OK_HEADERS + more)
        self.answer_data(framed(message))
        self.end(0)

    def end(self, code: int, trailers: bytes | None = None, headers: bytes = OK_HEADERS) -> None:
        """End the call with a status. If nothing was sent yet, send `headers` before the trailers."""
        if self.done:
            return
        block = status_trailers(code) if trailers is None else trailers
        if not self.began:
            block = headers + block + self._own_headers()
        self.connection.send_headers(self, block, True)
        self._finish(code)

    def fail(self, problem: Problem) -> None:
        if not self.done:
            self.problem = problem.with_traceback(None)  # the traceback would keep every frame's objects alive
            count_problem(self.shared.meter, problem, self.forwarding)
            self.end(problem.type.grpc_status, problem_trailers(problem))

    def defect(self) -> None:
        """End this call, but no other, because of the exception that is being handled."""
        log.exception("request %s failed with an internal error", self.request_id.decode())
        why = "Internal error. Details are in the proxy's log under this request ID."
        self.fail(Problem(ProblemType.INTERNAL, why))

    def _finish(self, code: int) -> None:
        self.done = True
        self.ended(code)
        if self.unsent_bytes:
            self.ease()
        else:
            self.shared.open_calls.discard(self)
            self.booking.end()

    def _own_headers(self) -> bytes:
        own = self.id_header
        if self.forwarding is not None and self.forwarding.version is not None:
            own += encode_header(b"tidegate-model-version", self.forwarding.version.encode())
        if self.headers.encoding != b"identity":
            own += encode_header(b"grpc-accept-encoding", b"identity")  # accepted encodings (gRPC, compression.md)
        return own
