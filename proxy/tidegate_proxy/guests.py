"""Callers' connections as guests of the proxy's memory: what they take is booked, a stranger's until known."""

import asyncio

from .concurrency import BULK_BYTES, FIRST_BYTES, ReceiveBuffer, RoundRobin, room
from .memory import Memory, MemoryOwner, Reservation
from .problems import Problem

CONNECTION_BYTES = 40 * 1024  # What a caller's connection takes: tables, what is known of it, and some unsent bytes.
TLS_BYTES = 48 * 1024  # What TLS adds, beside a buffer for as much as comes at once.
TLS_AT_ONCE = 16 * 1024  # Bytes that TLS is given at once to send: a record (RFC 8446, 5.1).
MOST_UNSENT = 16 * 1024  # Bytes of answers of one connection that wait for its caller and are not counted.


class _LostTransport(asyncio.Transport):
    """Stands for the transport of a connection that is lost: what still knows that keeps nothing of what TLS kept."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None:
        """Drop it."""

    def close(self) -> None:
        """It is closed."""

    abort = pause_reading = resume_reading = close


_LOST = _LostTransport()


class AccountedConnection(asyncio.BufferedProtocol):
    """A caller's connection: it holds bytes of its own, for a stranger until it is known whose it is."""

    held = 0
    came = 0  # Bytes that have come.
    is_unknown = True
    room: ReceiveBuffer
    refusals = 0  # Credentials that Domino has refused over it.
    memory: Memory
    booking: Reservation
    transport: asyncio.Transport
    wire: asyncio.Transport = None  # type: ignore[assignment]  # What the transport sends by: below TLS, else itself.
    base_bytes: int
    is_bulk = False  # Much has come at once, and others have their turn before more is read.
    _had_turn = False
    _most_at_once = 0  # Bytes that have come at once.
    _most_kept = 0  # Bytes that TLS could not send at once.

    def arrive(self, memory: Memory) -> bool:
        """Take a place as a stranger's; return whether there is one."""
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
        """Give back all that it holds."""
        self.memory.strangers.connections.pop(self, None)
        self.booking.end()

    def lost(self) -> None:
        """Give it back, and know its transport no longer."""
        self.leave()
        self.transport = self.wire = _LOST

    def set_principal(self, holder: MemoryOwner) -> None:
        """Learn whose it is; raises Problem, and then it is a stranger's still."""
        self.booking.move(self.memory.callers, holder)
        self.is_unknown = False
        self.settle()
        if self.is_bulk:  # its turn was one of strangers
            self._have_turn_to_read()

    def settle(self) -> None:
        """Be no stranger's, unless other calls over it still are."""
        if not self.held:
            self.memory.strangers.connections.pop(self, None)

    @property
    def _is_new(self) -> bool:
        """Whether little is read of it: it may be one of many strangers who send much at once.

        TLS has read what there is, and its hellos take longer than what comes after them.
        """
        return self.is_unknown and not (self._had_turn or self.is_over_tls)

    @property
    def owner(self) -> MemoryOwner | None:
        """Whose work it is what it sends: all strangers are one."""
        return None if self.is_unknown else self.booking.holder

    @property
    def host(self) -> str:
        """The address of its other end."""
        return str((self.transport.get_extra_info("peername") or ("",))[0])

    @property
    def unsent(self) -> int:
        """Bytes of answers that the caller has not taken yet; TLS has given some of them to the wire."""
        size = self.transport.get_write_buffer_size()
        return size if self.wire is self.transport else size + self.wire.get_write_buffer_size()

    def listen(self) -> None:
        """Hear the caller, unless it `is_bulk`, or there is another reason not to; for the protocols to override."""

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return room for what comes."""
        return self.room.first if self.is_unknown and self._is_new else self.room.whole

    def buffer_updated(self, size: int) -> None:
        """Take what has come."""
        self.came += size
        self.data_received(self.room.map[:size])

    def data_received(self, data: bytes) -> None:
        """Take what has come; for the protocols to override."""

    def take_turns(self, size: int, turns: RoundRobin) -> None:
        """Read on when it is its caller's turn, where so many bytes have come that others would wait for long."""
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
        """Count the two buffers that TLS keeps for as much as has come at once: as it came, and to be decrypted."""
        if self.wire is not self.transport and size > self._most_at_once:
            self.base_bytes += 2 * (size - self._most_at_once)
            self._most_at_once = size

    def write_out(self, data: bytes) -> None:
        """Write an answer, or a part of one."""
        if self.wire is self.transport:
            self.transport.write(data)
        else:
            self.write_over_tls(data)

    def write_over_tls(self, data: bytes) -> None:
        """Write little at once: TLS never gives back the buffer for the most that it had to keep."""
        view = memoryview(data)
        for start in range(0, len(view), TLS_AT_ONCE):
            self.transport.write(view[start : start + TLS_AT_ONCE])
        if (kept := self.transport.get_write_buffer_size()) > self._most_kept:
            self.base_bytes += 4 * (kept - self._most_kept) // 3  # OpenSSL rounds up like this
            self._most_kept = kept

    def books(self) -> Reservation:
        """Return what counts for a call over it of which it is not known who makes it."""
        return Reservation(self.booking.budget, self.booking.holder)

    def holds(self, more: int) -> bool:
        """Book so many bytes beside its own; return False where that is too much."""
        try:
            self.booking.set(self.base_bytes + more)
        except Problem:
            return False
        return True

    def evict(self) -> None:
        """End it: there is no room for it any more."""
        self.memory.count_cut("room")
        self.leave()

    def abort_if_slow(self) -> None:
        """End it at once where its caller could delay that: it takes nothing, or TLS waits for its farewell."""
        if self.is_over_tls or self.unsent:
            self.transport.abort()

    @property
    def is_over_tls(self) -> bool:
        """Whether TLS keeps what has come, too."""
        return self.wire is not self.transport
