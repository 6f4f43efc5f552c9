"""The body of a call over HTTP: taken in as it comes, bounded, in the form in which it is sent on."""

import zlib
from typing import Any

from ..bodies import Bytes, OfVersion
from ..guests import AccountedConnection
from ..malloc import give_freed_memory_back
from ..memory import UNPACKER_BYTES, MemoryOwner, Reservation
from ..problems import Problem, ProblemType
from ..shared_state import SharedState

MOST_DRAINED = 1024 * 1024  # Bytes of a refused body that are read to save the caller's connection.
MOST_UNSENT = 256 * 1024  # Bytes of a body that wait for a connection before its sender is held.
PASSING_BYTES = 4096  # A shorter body is booked only if it is still here at the end of the turn in which it came.
PART_BYTES = 64  # What a part of a body takes beside its bytes.
STEP = 256 * 1024  # Bytes that one step unpacks: about a millisecond's work.
FREED_AT_ONCE = 16 * 1024 * 1024  # Bytes of a body's parts after which the system gets them back.
MOST_UNPACKED = 8 * 1024 * 1024  # Bytes of a body's JSON, unpacked, that is read in one piece.
_PACKED_STEP = 64 * 1024
_NOTHING = bytearray()


class Caller(AccountedConnection):
    """A caller's connection, as its requests know it."""

    def is_active(self, request: Any) -> bool:
        """Tell whether it is this request's turn to be answered."""
        raise NotImplementedError

    def ended(self, request: Any) -> None:
        """Go on with the next request."""
        raise NotImplementedError


class RequestBody:
    """The body of a call: buffers received parts until they are sent; chunked bodies stay chunked."""

    __slots__ = (
        "_caller", "_chunk", "_head", "_shared", "_unpacked", "booking", "chunked", "complete", "gathers", "holder",
        "is_held", "length", "of_version", "parts", "received",
    )  # fmt: skip

    def __init__(self, length: int | None, chunked: bool, shared: SharedState, caller: Caller) -> None:
        self.length = length
        self.chunked = chunked
        self.received = 0  # Bytes so far.
        self.complete = False
        self.is_held = False
        self.gathers = False  # Whether it has to be whole before it is sent on, and its caller is known.
        self.parts: list[Bytes] = []
        self.of_version: OfVersion | None = None  # Returns what is sent, where the body said what is asked.
        self._unpacked = _NOTHING
        self._head = 0  # Bytes that are held with it: of a long head.
        self.booking: Reservation | None = None  # What it makes the proxy hold, once that is anything.
        self.holder: MemoryOwner | None = None  # Its caller, once that is known.
        self._shared = shared
        self._caller = caller
        if chunked:
            self._chunk = bytearray()  # What goes on as one chunk, however small the caller's are.

    @property
    def left(self) -> int:
        """Bytes of it that are still to come, as far as that is known."""
        return 0 if self.length is None else self.length - self.received

    def take(self, data: bytes, is_sent: bool) -> Problem | None:
        """Take a part of it; return why no more of it is taken. `is_sent`: what comes is sent on at once."""
        self.received += len(data)
        if self.chunked:
            self._chunk += data
            if self.received > self._shared.body_limit_bytes:
                return self.too_long()
        else:
            self.parts.append(data)
        if is_sent:
            return None
        if self.received > MOST_UNSENT and not self.gathers and not self.is_held:
            self.hold(True)
        return self.keep() if self.received > PASSING_BYTES else None

    def keep(self) -> Problem | None:
        """Book what has come and is not sent; return why it cannot be kept."""
        try:
            self.book(self.received + PART_BYTES * len(self.parts))
        except Problem as problem:
            return problem.with_traceback(None)
        return None

    def hold(self, held: bool) -> None:
        """Hold the caller back, or let the body come."""
        self.is_held = held
        self._caller.listen()

    def let_come(self) -> None:
        """Have all of it come before it is sent on."""
        self.gathers = True
        if self.is_held:
            self.hold(False)

    # --- what it makes the proxy hold
    def book(self, size: int) -> None:
        """Hold so many bytes, beside those of the head; raises Problem."""
        if self.booking is None:
            known = self.holder
            self.booking = self._caller.books() if known is None else Reservation(self._shared.memory.callers, known)
        self.booking.set(self._head + size)

    def book_head(self, size: int) -> None:
        """Hold the bytes of a long head, too; raises Problem."""
        self._head = size
        self.book(0)

    def set_principal(self, holder: MemoryOwner) -> None:
        """Hold it for its caller; raises Problem."""
        self.holder = holder
        if self.booking is not None:
            self.booking.move(self._shared.memory.callers, holder)

    def ease(self, left: int) -> None:
        """Hold no more than so many bytes beside those of the head: what came was sent on."""
        if self.booking is not None:
            self.booking.set(min(self.booking.size, self._head + left))

    def too_long(self) -> Problem:
        """Return what is told of a body of too many bytes."""
        most = self._shared.settings.body_limit_bytes
        return Problem(ProblemType.TOO_LONG, f"A request's body may have {most} bytes here.")

    def release(self) -> None:
        """Hold nothing of it any more."""
        if self.booking is not None:
            self.booking.end()
            self.parts.clear()
            self.of_version = None
            self._unpacked.clear()  # here, for a task that was cancelled may be kept for a while
            if self.chunked:
                self._chunk = bytearray()

    # --- as it is sent, and read
    def end_chunk(self) -> None:
        """Send what has come so far as one chunk."""
        if self._chunk:
            self.parts += (b"%x\r\n" % len(self._chunk), self._chunk, b"\r\n")
            self._chunk = bytearray()

    def end_chunks(self) -> None:
        """Send what has come so far as the last chunk."""
        self.end_chunk()
        self.parts.append(b"0\r\n\r\n")

    def whole(self) -> Bytes:
        """Return all of a body that is complete, and of which nothing was sent."""
        if self.chunked:
            return self.parts[1] if len(self.parts) > 1 else b""  # the one chunk stands behind its size
        parts = self.parts
        if len(parts) > 1:
            joined, freed = bytearray(), 0
            parts.reverse()
            while parts:  # each goes as it is joined: a long body would be there twice
                part = parts.pop()
                joined += part
                freed += len(part)
                if freed >= FREED_AT_ONCE:  # what was freed in small pieces stays with the process else
                    del part
                    give_freed_memory_back()
                    freed = 0
            parts.append(joined)
        return parts[0] if parts else b""

    async def unpacked(self, encoding: bytes, most: int | None) -> Bytes:
        """Return the first bytes of the whole, unpacked, all of them without `most`; raises Problem.

        Each step waits for its turn, so that others have theirs.
        """
        limit = min(self._shared.body_limit_bytes, MOST_UNPACKED)
        if not encoding:
            if most is None and self.received > limit:
                raise self._too_long_to_read(limit)
            return self.whole() if most is None else self.whole()[:most]
        if encoding not in (b"gzip", b"deflate"):
            raise Problem(ProblemType.MALFORMED, "A body may be compressed with gzip or deflate.")
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        found = self._unpacked = bytearray()
        for at in range(0, len(self.whole()), _PACKED_STEP):
            packed = bytes(self.whole()[at : at + _PACKED_STEP])
            while True:
                await self._shared.long_work.turn(self.holder)
                try:
                    part = unpacker.decompress(packed, STEP)
                except zlib.error:
                    why = "The body is not compressed as its header says."
                    raise Problem(ProblemType.MALFORMED, why) from None
                found += part
                if len(found) > limit:
                    raise self._too_long_to_read(limit)
                self.book(self.received + len(found) + UNPACKER_BYTES)
                if most is not None and len(found) >= most:
                    return found[:most]
                if len(part) < STEP:
                    break
                packed = unpacker.unconsumed_tail
        return found

    def _too_long_to_read(self, limit: int) -> Problem:
        why = f"JSON in which a sequence is looked for may have {limit} bytes, unpacked: send tensors as binary data."
        return Problem(ProblemType.TOO_LONG, why)

    def drop_unpacked(self) -> None:
        """Forget what was unpacked: the body goes on as it came."""
        self._unpacked.clear()
        self.ease(self.received)

    def opened(self, found: OfVersion | Bytes) -> None:
        """Send on what was found in the body instead of all of it."""
        if callable(found):
            self.of_version = found
        else:
            self.parts = [found]
            self.length = len(found)
            self.chunked = False

    def choose(self, model: str, version: str | None, asks_for_usage: bool = False) -> None:
        """Send what is to be sent for a model and a version, where that differs from what has come."""
        if self.of_version is not None:
            self.parts = self.of_version(model, version, asks_for_usage)
            self.length, self.chunked = sum(map(len, self.parts)), False

    def framing(self) -> bytes:
        """Return the header that says how it is sent, and the end of the head."""
        if self.chunked:
            return b"\r\ntransfer-encoding: chunked\r\n\r\n"
        if self.length is not None:
            return b"\r\ncontent-length: %d\r\n\r\n" % self.length
        return b"\r\n\r\n"
