"""The body of a call over HTTP: taken in as it comes, bounded, in the form in which it is sent on."""

from ..problems import Problem, ProblemType
from ..shared_state import SharedState
from .caller import Body, Caller

MOST_DRAINED = 1024 * 1024  # Bytes of a refused body that are read to save the caller's connection.
MOST_UNSENT = 256 * 1024  # Bytes of a body that wait for a connection before its sender is held.


class RequestBody(Body):
    """The body of a call: buffers received parts until they are sent; chunked bodies stay chunked."""

    __slots__ = ("_caller", "_chunk", "_gathered", "_shared", "chunked", "gathers", "length", "parts", "received")

    def __init__(self, length: int | None, chunked: bool, shared: SharedState, caller: Caller) -> None:
        self.length = length
        self.chunked = chunked
        self.received = 0  # Bytes so far.
        self.complete = False
        self.is_held = False
        self.gathers = False  # Whether it has to be whole before it is sent on.
        self.parts: list[bytes | bytearray | memoryview] = []
        self._gathered = 0  # Bytes of it that the proxy's budget for whole bodies holds.
        self._shared = shared
        self._caller = caller
        if chunked:
            self._chunk = bytearray()  # What goes on as one chunk, however small the caller's are.

    def take(self, data: bytes, is_sent: bool) -> Problem | None:
        """Take a part of it; return why no more of it is taken. `is_sent`: what comes is sent on at once."""
        self.received += len(data)
        if self.chunked:
            self._chunk += data
            if self.received > self._shared.body_limit_bytes:
                return self.too_long()
        else:
            self.parts.append(data)
        if is_sent or self.received <= MOST_UNSENT or self.is_held:
            return None
        if self.gathers:
            return self._gather()
        self.hold(True)
        return None

    def hold(self, held: bool) -> None:
        """Hold the caller back, or let the body come."""
        self.is_held = held
        self._caller.listen()

    def let_come(self) -> Problem | None:
        """Have all of it come before it is sent on; return why it cannot."""
        self.gathers = True
        if self.complete or not self.is_held:
            return None
        self.hold(False)
        return self._gather()

    def _gather(self) -> Problem | None:
        more = self.received - MOST_UNSENT - self._gathered
        if more > self._shared.buffer_left:
            return Problem(ProblemType.BUSY, "Too many large requests are being read already.", 1.0)
        self._shared.buffer_left -= more
        self._gathered += more
        return None

    def release(self) -> None:
        """Give back what it took of the proxy's budget."""
        self._shared.buffer_left += self._gathered

    def too_long(self) -> Problem:
        """Return what is told of a body of too many bytes."""
        most = self._shared.settings.body_limit_bytes
        return Problem(ProblemType.TOO_LONG, f"A request's body may have {most} bytes here.")

    def end_chunk(self) -> None:
        """Send what has come so far as one chunk."""
        if self._chunk:
            self.parts += (b"%x\r\n" % len(self._chunk), self._chunk, b"\r\n")
            self._chunk = bytearray()

    def end_chunks(self) -> None:
        """Send what has come so far as the last chunk."""
        self.end_chunk()
        self.parts.append(b"0\r\n\r\n")

    def whole(self) -> bytes | bytearray | memoryview:
        """Return all of a body that is complete, and of which nothing was sent."""
        if self.chunked:
            return self.parts[1] if len(self.parts) > 1 else b""  # the one chunk stands behind its size
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def replace(self, data: memoryview) -> None:
        """Send this instead of what has come."""
        self.length, self.chunked = len(data), False
        self.parts = [data]

    def framing(self) -> bytes:
        """Return the header that says how it is sent, and the end of the head."""
        if self.chunked:
            return b"\r\ntransfer-encoding: chunked\r\n\r\n"
        if self.length is not None:
            return b"\r\ncontent-length: %d\r\n\r\n" % self.length
        return b"\r\n\r\n"
