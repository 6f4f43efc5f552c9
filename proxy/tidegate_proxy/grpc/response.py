"""The caller's side of one call: what goes back, headers, messages and a status in the end; and when its time is up."""

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

CALL_BYTES = 4096  # What a call takes beside its headers, messages and answer.
IDLE_STREAM_SECONDS = 600.0  # Seconds that a stream may stay open while its caller asks for nothing.


class Deadline:
    """The caller's, or the proxy's own limit of `most` seconds; a stream has that anew with each message.

    `at` and `last` are monotonic seconds: when the time is up, and when it is at the latest, by the caller's deadline.
    """

    __slots__ = ("_most", "at", "is_own", "last", "started")

    def __init__(self, started: float, most: float, asked: float | None, stream: bool = False) -> None:
        self.started = started
        self.last = float("inf") if asked is None else started + asked
        self.at = min(started + (IDLE_STREAM_SECONDS if stream else most), self.last)
        self.is_own = asked is None or asked >= most
        """A time-out is the replica's failure: the caller's own deadline is not shorter than the proxy's limit."""
        self._most = most

    @property
    def left(self) -> float:
        """Seconds until the time is up."""
        return self.at - monotonic()

    @property
    def seconds(self) -> float:
        """Seconds between the call's start and the end of its time."""
        return self.at - self.started

    def message_sent(self) -> None:
        """Begin anew: a message of a stream went to the replica."""
        self.at = min(monotonic() + self._most, self.last)

    def message_received(self) -> None:
        """Begin anew: a message of a stream came from the replica."""
        self.at = min(monotonic() + max(self._most, IDLE_STREAM_SECONDS), self.last)


@dataclass(eq=False)
class UpstreamStatusError(Exception):
    """A replica answered with a gRPC status of its own, which goes to the caller as it is."""

    block: bytes
    code: int


CANCELLED = 1  # The status that is counted for a caller that has left; it is not sent.
log = logging.getLogger(__name__)


class CallerStream(Stream):
    """A caller's gRPC stream: headers, messages and status sent back, with a deadline. Open from `begin` on."""

    # What most calls never change costs them nothing here.
    booking: Reservation  # What it makes the proxy hold.
    forwarding: Forwarding | None = None
    """The call's way to a replica, once its first message was granted: the caller is told which version answers."""
    began = False
    done = False
    bytes_out = 0
    problem: Problem | None = None  # What ended it, if it is one.
    task: asyncio.Task[None] | None = None  # Its work that is under way, or was last.

    def __init__(self, shared: SharedState, headers: RequestHeaders, started: float, streams: bool = False) -> None:
        self.shared = shared
        self.headers = headers
        self.request_id = headers.request_id or new_request_id()
        self.time = Deadline(started, float(shared.settings.request_timeout_seconds), headers.seconds, streams)

    @property
    def deadline(self) -> float:
        """When its time is up, in monotonic seconds."""
        return self.time.at

    @property
    def replica(self) -> Replica | None:
        """Where it is in flight."""
        return None if self.forwarding is None else self.forwarding.replica

    # --- from the caller
    def begin(self, end: bool, guest: AccountedConnection) -> None:
        """Wait for the first message over a connection; `end`: there is none."""
        self.shared.open_calls.add(self)
        self._guest = guest
        self.booking = guest.books()
        identity = self.shared.authorizer.remembered(self.headers.credential)
        try:
            if identity is not None:
                self.set_principal(identity)
            self.hold()
            if self.headers.credentials > 1:
                raise Problem(ProblemType.MALFORMED, TWO_CREDENTIALS)
        except Problem as problem:
            self.fail(problem)
        else:
            self.begun(identity is not None)
            if end:
                self.data_received(b"", True)

    def begun(self, _is_known: bool) -> None:
        """Go on from the headers; it is known who sends them, or not yet."""

    def set_principal(self, identity: Identity) -> None:
        """Hold what it holds for its caller; raises Problem."""
        self.booking.move(self.shared.memory.callers, identity.in_flight)
        if self._guest.is_unknown:
            self._guest.set_principal(identity.in_flight)
        else:
            self._guest.settle()

    def held_bytes(self) -> int:
        """Return how many bytes it makes the proxy hold: also of the answer, until its caller takes them."""
        return CALL_BYTES + self.headers.size + self.unsent_held

    def hold(self) -> None:
        """Book what it holds now; raises Problem."""
        self.booking.set(self.held_bytes())

    def ease(self) -> None:
        """Give back what it holds no longer."""
        self.booking.set(min(self.booking.size, self.held_bytes()))

    def headers_received(self, _: RequestHeaders, end: bool) -> None:
        """Take the trailers, which end the request: nothing in them is for the replica."""
        if end:
            self.data_received(b"", True)

    def reset_received(self, _code: int | None, _processed: bool) -> None:
        """End the call as cancelled: its caller has reset the stream. What a replica still answers is dropped."""
        if not self.done:
            self._finish(CANCELLED)
        self.booking.end()

    def drained(self) -> None:
        """Note that the caller has taken what there was."""
        if self.done:
            self.shared.open_calls.discard(self)
            self.booking.end()
        else:
            self.ease()

    def expire(self) -> None:
        """End the call: its time is up."""
        if self.done:  # the caller does not take the rest of its answer
            self.shared.open_calls.discard(self)
            self.booking.end()
            self.connection.reset(self.number, CANCEL)
        else:
            self.fail(self.late())

    def replica_silent(self) -> None:
        """Keep no other call from its place: its replica answers nothing any more, but it may still do so."""
        if self.forwarding is not None:
            self.forwarding.release_slot()

    def late(self) -> Problem:
        """Return what a caller is told when its time is up."""
        return Problem(ProblemType.DEADLINE, "There was no answer in time.")

    def leave(self) -> None:
        """End it: the proxy waits for it no longer."""
        why = "The proxy is stopping; another one takes the call."
        self.fail(Problem(ProblemType.BUSY, why, 0.0, reason="stopping"))

    def ended(self, _code: int) -> None:
        """Give back what it holds: the last of its answer, with this status, is on its way."""
        if self.task not in (None, asyncio.current_task(self.connection.loop)):
            self.task.cancel()

    # --- its work
    def start(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        """Do some work that takes its time; what fails there ends the call."""
        self.task = self.connection.loop.create_task(self._run(work, *given))

    def worked(self) -> None:
        """Go on: such work is done."""

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

    # --- to the caller
    def answer_began(self, headers: bytes = OK_HEADERS) -> None:
        """Send the answer's headers to the caller, with those that the proxy adds."""
        self.began = True
        self.connection.send_headers(self, headers + self._own_headers())

    def answer_data(self, data: bytes) -> None:
        """Send a part of a message."""
        self.bytes_out += len(data)
        self.connection.send_data(self, data)
        if self.unsent_bytes:
            try:
                self.hold()
            except Problem as problem:
                # What it would be told stands behind the answer that it does not take.
                self.problem = problem.with_traceback(None)
                count_problem(self.shared.meter, problem, self.forwarding)
                self.connection.reset(self.number, ENHANCE_YOUR_CALM)
                self.shared.memory.count_cut("answer")
                self._finish(problem.type.grpc_status)

    def reply(self, message: bytes, more: bytes = b"") -> None:
        """Send a whole answer of one message, with `more` headers."""
        self.answer_began(OK_HEADERS + more)
        self.answer_data(framed(message))
        self.end(0)

    def end(self, code: int, trailers: bytes | None = None, headers: bytes = OK_HEADERS) -> None:
        """End with a status, and with these `headers` before the trailers if nothing was sent so far."""
        if self.done:
            return
        block = status_trailers(code) if trailers is None else trailers
        if not self.began:
            block = headers + block + self._own_headers()
        self.connection.send_headers(self, block, True)
        self._finish(code)

    def fail(self, problem: Problem) -> None:
        """End with a problem."""
        if not self.done:
            self.problem = problem.with_traceback(None)  # which knows all that it passed, for as long as it is known
            count_problem(self.shared.meter, problem, self.forwarding)
            self.end(problem.type.grpc_status, problem_trailers(problem))

    def defect(self) -> None:
        """End because of the exception that is being handled: it ends this call, and none beside it."""
        log.exception("request %s met a defect", self.request_id.decode())
        self.fail(Problem(ProblemType.INTERNAL, "It is in the log, under this request's id."))

    def _finish(self, code: int) -> None:
        self.done = True
        self.ended(code)
        if self.unsent_bytes:
            self.ease()
        else:
            self.shared.open_calls.discard(self)
            self.booking.end()

    def _own_headers(self) -> bytes:
        own = encode_header(b"x-request-id", self.request_id)
        if self.forwarding is not None and self.forwarding.version is not None:
            own += encode_header(b"tidegate-model-version", self.forwarding.version.encode())
        if self.headers.encoding != b"identity":
            own += encode_header(b"grpc-accept-encoding", b"identity")  # what the server takes (gRPC, compression.md)
        return own
