"""The body of an HTTP call: received in parts, limited in size, and converted to the form that is sent on."""

import zlib
from typing import Any

from ..bodies import Bytes, OfVersion
from ..guests import AccountedConnection
from ..malloc import give_freed_memory_back
from ..memory import UNPACKER_BYTES, MemoryOwner, Reservation
from ..problems import Problem, ProblemType
from ..shared_state import SharedState

MOST_DRAINED = 1024 * 1024  # Bytes of a refused body that are read so that the caller's connection can be kept.
MOST_UNSENT = 256 * 1024  # Bytes that can wait for a replica's connection before reading from the caller pauses.
PASSING_BYTES = 4096  # A shorter body is counted only if it is still here at the end of this event-loop turn.
PART_BYTES = 64  # Overhead of each part of a body.
STEP = 256 * 1024  # Bytes that one step decompresses, in about a millisecond.
FREED_AT_ONCE = 16 * 1024 * 1024  # Bytes of freed parts after which the memory is returned to the system.
MOST_UNPACKED = 8 * 1024 * 1024  # Largest decompressed JSON that is parsed in one piece.
_PACKED_STEP = 64 * 1024
_NOTHING = bytearray()


class Caller(AccountedConnection):
    """A caller's connection, as its requests see it."""

    def is_active(self, request: Any) -> bool:
        raise NotImplementedError

    def ended(self, request: Any) -> None:
        """Continue with the next request."""
        raise NotImplementedError


class RequestBody:
    """The body of a call. Buffers the parts until they are sent. A chunked body is sent on in chunks."""

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
        self.gathers = False  # Whether the body must be complete before it is sent on. Its caller is identified.
        self.parts: list[Bytes] = []
        self.of_version: OfVersion | None = None  # Returns the parts to send, if the body itself names the model.
        self._unpacked = _NOTHING
        self._head = 0  # Bytes of a long head, which are counted with the body.
        self.booking: Reservation | None = None  # The memory that is counted, if there is any.
        self.holder: MemoryOwner | None = None  # The caller's memory account, once the caller is identified.
        self._shared = shared
        self._caller = caller
        if chunked:
            self._chunk = bytearray()  # Collects the caller's chunks, however small, into one.

    @property
    def left(self) -> int:
        """The number of bytes still to come, if known, else 0."""
        return 0 if self.length is None else self.length - self.received

    def take(self, data: bytes, is_sent: bool) -> Problem | None:
        """Add a part. `is_sent`: it is sent on immediately. Return a problem if the body is refused."""
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
        """Count the memory of the unsent parts. Return a problem if there is not enough."""
        try:
            self.book(self.received + PART_BYTES * len(self.parts))
        except Problem as problem:
            return problem.with_traceback(None)
        return None

    def hold(self, held: bool) -> None:
        """Pause or resume reading from the caller."""
        self.is_held = held
        self._caller.listen()

    def let_come(self) -> None:
        """Wait for the whole body before it is sent on."""
        self.gathers = True
        if self.is_held:
            self.hold(False)

    def book(self, size: int) -> None:
        """Count `size` bytes, in addition to those of the head. Raises Problem."""
        if self.booking is None:
            owner = self.holder
            self.booking = self._caller.books() if owner is None else Reservation(self._shared.memory.callers, owner)
        self.booking.set(self._head + size)

    def book_head(self, size: int) -> None:
        """Count the bytes of a long head. Raises Problem."""
        self._head = size
        self.book(0)

    def set_principal(self, holder: MemoryOwner) -> None:
        """Count the memory for the identified caller. Raises Problem."""
        self.holder = holder
        if self.booking is not None:
            self.booking.move(self._shared.memory.callers, holder)

    def ease(self, left: int) -> None:
        """Count at most `left` bytes in addition to those of the head, because data was sent on."""
        if self.booking is not None:
            self.booking.set(min(self.booking.size, self._head + left))

    def too_long(self) -> Problem:
        """Return the problem for a body above the limit."""
        most = self._shared.settings.body_limit_bytes
        return Problem(ProblemType.TOO_LONG, f"Request body too large: the limit is {most} bytes (proxy.bodyLimit).")

    def release(self) -> None:
        if self.booking is not None:
            self.booking.end()
            self.parts.clear()
            self.of_version = None
            self._unpacked.clear()  # explicitly, because a cancelled task can live on for a while
            if self.chunked:
                self._chunk = bytearray()

    def end_chunk(self) -> None:
        """Turn the data received so far into one chunk to send."""
        if self._chunk:
            self.parts += (b"%x\r\n" % len(self._chunk), self._chunk, b"\r\n")
            self._chunk = bytearray()

    def end_chunks(self) -> None:
        """Turn the data received so far into the last chunk to send."""
        self.end_chunk()
        self.parts.append(b"0\r\n\r\n")

    def whole(self) -> Bytes:
        """Return the body. It must be complete, with nothing sent yet."""
        if self.chunked:
            return self.parts[1] if len(self.parts) > 1 else b""  # the one chunk follows its size
        parts = self.parts
        if len(parts) > 1:
            joined, freed = bytearray(), 0
            parts.reverse()
            while parts:  # drop each part once it is joined: otherwise a long body would be in memory twice
                part = parts.pop()
                joined += part
                freed += len(part)
                if freed >= FREED_AT_ONCE:  # otherwise the allocator keeps memory that was freed in small pieces
                    del part
                    give_freed_memory_back()
                    freed = 0
            parts.append(joined)
        return parts[0] if parts else b""

    async def unpacked(self, encoding: bytes, most: int | None) -> Bytes:
        """Return the first `most` bytes of the decompressed body, or all of it. Raises Problem. Each step waits for its
        turn, so that other calls proceed."""
        limit = min(self._shared.body_limit_bytes, MOST_UNPACKED)
        if not encoding:
            if most is None and self.received > limit:
                raise self._too_long_to_read(limit)
            return self.whole() if most is None else self.whole()[:most]
        if encoding not in (b"gzip", b"deflate"):
            why = "The body's Content-Encoding is not supported: use gzip or deflate, or send the body uncompressed."
            raise Problem(ProblemType.MALFORMED, why)
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        found = self._unpacked = bytearray()
        for at in range(0, len(self.whole()), _PACKED_STEP):
            packed = bytes(self.whole()[at : at + _PACKED_STEP])
            while True:
                await self._shared.long_work.turn(self.holder)
                try:
                    part = unpacker.decompress(packed, STEP)
                except zlib.error:
                    why = "The body cannot be decompressed: it does not match its Content-Encoding header."
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
        why = f"The JSON is too large to find its sequence ID: the limit is {limit} bytes, decompressed."
        return Problem(ProblemType.TOO_LONG, why + " Send tensors as binary data.")

    def drop_unpacked(self) -> None:
        """Free the decompressed data. The body is sent on as it was received."""
        self._unpacked.clear()
        self.ease(self.received)

    def opened(self, found: OfVersion | Bytes) -> None:
        """Replace the body by a part of it, or by a function that returns the parts to send."""
        if callable(found):
            self.of_version = found
        else:
            self.parts = [found]
            self.length = len(found)
            self.chunked = False

    def choose(self, model: str, version: str | None, requests_usage: bool = False) -> None:
        """Build the body for a model and a version, if it depends on them."""
        if self.of_version is not None:
            self.parts = self.of_version(model, version, requests_usage)
            self.length, self.chunked = sum(map(len, self.parts)), False

    def framing(self) -> bytes:
        """Return the header that describes the body's framing, and the end of the head."""
        if self.chunked:
            return b"\r\ntransfer-encoding: chunked\r\n\r\n"
        if self.length is not None:
            return b"\r\ncontent-length: %d\r\n\r\n" % self.length
        return b"\r\n\r\n"
