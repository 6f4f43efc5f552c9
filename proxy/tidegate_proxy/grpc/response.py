"""What goes back to the caller of one call: headers, messages, and a status in the end."""

import logging
from collections.abc import Callable

from ..forwarding import Forwarding
from ..http2.headers import literal
from ..http2.sending import Stream
from ..problems import Kind, Problem
from ..shared_state import SharedState
from .protobuf import framed
from .status import OK_HEADERS, STATUS_200, problem_trailers, status_trailers

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
