"""What goes back to the caller of one call: headers, messages, and a status in the end; and when its time is up."""

import logging
from collections.abc import Callable
from time import monotonic

from ..forwarding import Forwarding
from ..http2.headers import literal
from ..http2.sending import Stream
from ..problems import Kind, Problem
from ..shared_state import SharedState
from .metadata import OK_HEADERS, STATUS_200, problem_trailers, status_trailers
from .protobuf import framed

IDLE_STREAM_SECONDS = 600.0
"""Seconds that a stream may stay open while its caller asks for nothing."""


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


CANCELLED = 1
"""The status that is counted for a caller who has left; it is not sent."""
log = logging.getLogger(__name__)


class Response:
    """Sent on the caller's `stream`; `ended` is called once, with the status, when the last of it was sent."""

    __slots__ = ("_ended", "_stream", "began", "bytes_out", "done", "forwarding", "problem", "request_id", "shared")

    def __init__(self, stream: Stream, shared: SharedState, request_id: bytes, ended: Callable[[int], None]) -> None:
        self._stream = stream
        self.shared = shared
        self.request_id = request_id
        self._ended = ended
        self.forwarding: Forwarding | None = None
        """The call's way to a replica, where it has one: the caller is told which version answers."""
        self.began = False
        self.done = False
        self.bytes_out = 0
        self.problem: str | None = None
        """The word of the problem that ended it."""

    def begin(self, headers: bytes = OK_HEADERS) -> None:
        """Send headers, and those of the proxy's own."""
        self.began = True
        self._stream.connection.send_headers(self._stream, headers + self._own_headers())

    def data(self, data: bytes) -> None:
        """Send a part of a message."""
        self.bytes_out += len(data)
        self._stream.connection.send_data(self._stream, data)

    def reply(self, message: bytes, more: bytes = b"") -> None:
        """Send a whole answer of one message, with `more` headers."""
        self.begin(OK_HEADERS + more)
        self._stream.connection.send_data(self._stream, framed(message))
        self.end(0)

    def end(self, code: int, trailers: bytes | None = None, headers: bytes = OK_HEADERS) -> None:
        """End with a status, and with these `headers` before the trailers if nothing was sent so far."""
        if self.done:
            return
        block = status_trailers(code) if trailers is None else trailers
        if not self.began:
            block = headers + block + self._own_headers()
        self._stream.connection.send_headers(self._stream, block, True)
        self._finish(code)

    def abandon(self) -> None:
        """Send nothing more: the caller has left."""
        if not self.done:
            self._finish(CANCELLED)

    def pass_on_end(self, code: int, trailers: bytes) -> None:
        """End as a replica does: its trailers are all there is where it sent no message."""
        self.end(code, trailers, STATUS_200)

    def fail(self, problem: Problem) -> None:
        """End with a problem."""
        if not self.done:
            self.problem = problem.kind.word
            self.shared.meter.problems[self.problem] += 1
            self.end(problem.kind.grpc_status, problem_trailers(problem))

    def defect(self) -> None:
        """End because of the exception that is being handled: it ends this call, and none beside it."""
        log.exception("request %s met a defect", self.request_id.decode())
        self.fail(Problem(Kind.INTERNAL, "It is in the log, under this request's id."))

    def _finish(self, code: int) -> None:
        self.done = True
        ended = self._ended
        del self._ended, self._stream  # a call that ends leaves no reference cycle, and no work for the collector
        ended(code)

    def _own_headers(self) -> bytes:
        own = literal(b"x-request-id", self.request_id)
        if self.forwarding is not None and self.forwarding.version is not None:
            own += literal(b"tidegate-model-version", self.forwarding.version.encode())
        return own
