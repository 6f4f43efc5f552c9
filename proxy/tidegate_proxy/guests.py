"""Callers' connections, whose memory is counted: as unauthenticated, until the caller is known."""

import asyncio

from .concurrency import BULK_BYTES, FIRST_BYTES, ReceiveBuffer, RoundRobin, room
from .memory import Memory, MemoryOwner, Reservation
from .problems import Problem

CONNECTION_BYTES = 40 * 1024  # Memory of a caller's connection: tables, its state, and some unsent bytes.
TLS_BYTES = 48 * 1024  # Memory that TLS adds, except a buffer for as much as comes at once.
TLS_AT_ONCE = 16 * 1024  # Bytes per write to TLS: a record (RFC 8446, 5.1).
MOST_UNSENT = 16 * 1024  # Unsent bytes of responses on one connection that are not counted.


class _LostTransport(asyncio.Transport):
    """Replaces the transport of a lost connection, so that references to the connection keep no memory of TLS."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None:
        """Drop the data."""

    def close(self) -> None:
        """Do nothing, because it is closed."""

    abort = pause_reading = resume_reading = close


_LOST = _LostTransport()


class AccountedConnection(asyncio.BufferedProtocol):
    """A caller's connection. It holds counted bytes, as an unauthenticated one until its caller is known."""

    held = 0
    came = 0  # Bytes received.
    is_unknown = True
    room: ReceiveBuffer
    refusals = 0  # Credentials on this connection that Domino has refused.
    memory: Memory
    booking: Reservation
    transport: asyncio.Transport
    wire: asyncio.Transport = None  # type: ignore[assignment]  # Below TLS, or else the transport itself.
    base_bytes: int
    is_bulk = False  # Much has come at once, so others have their turn before more is read.
    _had_turn = False
    _most_at_once = 0  # Most bytes that have come at once.
    _most_kept = 0  # Most bytes that TLS could not send at once.

    def arrive(self, memory: Memory) -> bool:
        """Take memory as an unauthenticated connection. Return whether there is some."""
        self.room, self.memory = room(), memory
        self.booking = Reservation(memory.strangers, self)
        self.base_bytes = CONNECTION_BYTES
        if self.wire is None:
            self.wire = self.transport
        else:
            self.base_bytes += TLS_BYTES
            self.wire.set_write_buffer_limits(high=MOST_UNSENT)
        self.transport.set_write_buffer_limits(high=MOST_UNSENT)
        memory.strangers.connections[self] = None
        return self.holds(0)

    def leave(self) -> None:
        self.memory.strangers.connections.pop(self, None)
        self.booking.end()

    def lost(self) -> None:
        """Give all its memory back, and drop its transport."""
        self.leave()
        self.transport = self.wire = _LOST

    def set_principal(self, holder: MemoryOwner) -> None:
        """Count the connection as its first caller's. Raises Problem, and then it stays unauthenticated."""
        if self.is_unknown:
            self.booking.move(self.memory.callers, holder)
            self.is_unknown = False
            if self.is_bulk:  # it was queued among unauthenticated connections
                self._have_turn_to_read()
        self.settle()

    def settle(self) -> None:
        """Take it off the unauthenticated connections, unless one of its calls still is."""
        if not self.held:
            self.memory.strangers.connections.pop(self, None)

    @property
    def _is_new(self) -> bool:
        """Whether only little is read of it at once, because many unauthenticated connections may send much. Not over
        TLS, which has already read the data, and whose handshake takes longer than what follows."""
        return self.is_unknown and not (self._had_turn or self.is_over_tls)

    @property
    def owner(self) -> MemoryOwner | None:
        """The owner of the work with its data. All unauthenticated connections share one."""
        return None if self.is_unknown else self.booking.holder

    @property
    def host(self) -> str:
        return str((self.transport.get_extra_info("peername") or ("",))[0])

    @property
    def unsent(self) -> int:
        """Bytes of responses that the caller has not read. TLS has passed some of them to the wire."""
        size = self.transport.get_write_buffer_size()
        return size if self.wire is self.transport else size + self.wire.get_write_buffer_size()

    def listen(self) -> None:
        """Read from the caller, unless it `is_bulk` or something else prevents it. Protocols override this."""

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self.room.first if self.is_unknown and self._is_new else self.room.whole

    def buffer_updated(self, size: int) -> None:
        self.came += size
        self.data_received(self.room.map[:size])

    def data_received(self, data: bytes) -> None:
        """Take the bytes that were read. Protocols override this."""

    def take_turns(self, size: int, turns: RoundRobin) -> None:
        """After so many bytes that others would wait for long, read on only when it is the caller's turn."""
        most = FIRST_BYTES if self._is_new else BULK_BYTES
        if size >= most and not (self.is_bulk or self.transport.is_closing()):
            self.is_bulk = True
            self.listen()
            turns.add(self.owner, self._have_turn_to_read)

    def _have_turn_to_read(self) -> None:
        self.is_bulk, self._had_turn = False, True
        if not self.transport.is_closing():
            self.listen()

    def count_at_once(self, size: int) -> None:
        """Count TLS's two buffers for the most that has come at once: encrypted, and to be decrypted."""
        if self.wire is not self.transport and size > self._most_at_once:
            self.base_bytes += 2 * (size - self._most_at_once)
            self._most_at_once = size

    def write_out(self, data: bytes) -> None:
        """Write a response, or a part of one."""
        if self.wire is self.transport:
            self.transport.write(data)
        else:
            self.write_over_tls(data)

    def write_over_tls(self, data: bytes) -> None:
        """Write in small pieces, because TLS never frees the buffer for the most that it had to keep."""
        view = memoryview(data)
        for start in range(0, len(view), TLS_AT_ONCE):
            self.transport.write(view[start : start + TLS_AT_ONCE])
        if (kept := self.transport.get_write_buffer_size()) > self._most_kept:
            self.base_bytes += 4 * (kept - self._most_kept) // 3  # OpenSSL rounds up like this
            self._most_kept = kept

    def books(self) -> Reservation:
        """Return a reservation for a call on it whose caller is unknown."""
        return Reservation(self.booking.budget, self.booking.holder)

    def holds(self, more: int) -> bool:
        """Reserve so many bytes in addition to its own. Return False if that is too much."""
        try:
            self.booking.set(self.base_bytes + more)
        except Problem:
            return False
        return True

    def evict(self) -> None:
        """Close the connection, because its memory is needed."""
        self.memory.count_cut("room")
        self.leave()

    def abort_if_slow(self) -> None:
        """Abort it if its caller could delay a close: it does not read, or TLS waits for its shutdown."""
        if self.is_over_tls or self.unsent:
            self.transport.abort()

    @property
    def is_over_tls(self) -> bool:
        """Whether TLS buffers the data, too."""
        return self.wire is not self.transport
