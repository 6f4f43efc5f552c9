"""TLS for callers' connections. A connection counts as unauthenticated during the handshake, too."""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from .concurrency import BULK_BYTES
from .guests import AccountedConnection
from .shared_state import SharedState

FAREWELL_SECONDS = 1.0  # Timeout of the TLS shutdown.
FRUITLESS_AT_ONCE = 2048  # Bytes per read of a connection whose records bring no data.
MOST_FRUITLESS = 64 * 1024  # Such bytes in a row: a hello with certificates, or records of 16 KiB that come in pieces.
FRUITFUL = 4  # Bytes of overhead allowed for each byte of data: records of more than 7 bytes.


class _Records(asyncio.BufferedProtocol):
    """Passes incoming bytes to TLS, and closes connections that keep sending records without data. Such a record can
    demand a new key for each 27 bytes, which takes 0.1 ms (RFC 8446, 4.6.3)."""

    def __init__(self, door: "TlsHandshake", tls: asyncio.BufferedProtocol) -> None:
        self._door = door
        self._tls = tls
        self._before = door.came_inside  # Bytes of data that had come before the last read.
        self._size = 0  # Bytes of the last read. After a handshake, TLS delivers data in the loop's next turn.
        self._fruitless = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return TLS's buffer, or little of it if recent reads brought no data."""
        came = self._door.came_inside
        self._fruitless = max(0, self._fruitless + self._size - FRUITFUL * (came - self._before))
        self._before, self._size = came, 0
        room = memoryview(self._tls.get_buffer(sizehint))
        return room[:FRUITLESS_AT_ONCE] if self._fruitless else room

    def buffer_updated(self, size: int) -> None:
        """Pass the bytes to TLS, unless too many earlier ones brought no data."""
        self._size = size
        too_much = self._fruitless > MOST_FRUITLESS
        if self._fruitless:
            self._door.note_fruitless(too_much=too_much)
        if not too_much:
            self._tls.buffer_updated(size)

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on. Then drop both references, because the transport keeps this object alive."""
        self._tls.connection_lost(exc)
        del self._tls, self._door


class TlsHandshake(AccountedConnection):
    """A connection during its TLS handshake. Then another protocol takes it over, with the wire below it."""

    def __init__(self, shared: SharedState, tls: ssl.SSLContext, behind: Callable[[], AccountedConnection]) -> None:
        self._shared = shared
        self._tls = tls
        self._behind = behind
        self._early = b""  # Bytes that came before a protocol could take them.
        self._inner: AccountedConnection | None = None
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake, if there is memory for the connection."""
        self.transport = self.wire = cast(asyncio.Transport, transport)
        if self.arrive(self._shared.memory):
            self._task = asyncio.get_running_loop().create_task(self._handshake(self.transport))
        else:
            self.evict()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return a buffer for all that comes with the end of the handshake. TLS would lose the rest of a record."""
        return self.room.whole

    def data_received(self, data: bytes) -> None:
        """Keep the bytes for the protocol that takes over."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the protocol that has taken over, if any."""
        self._is_lost = True
        self.leave()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def evict(self) -> None:
        super().evict()
        self.transport.abort()

    @property
    def came_inside(self) -> int:
        """Bytes of data that have come over TLS."""
        return self.came + (0 if self._inner is None else self._inner.came)

    def note_fruitless(self, *, too_much: bool) -> None:
        """Let other connections read first, or close this one, because its records bring no data."""
        if too_much:
            self.memory.count_cut("chatter")
            self.wire.abort()
        elif self._inner is not None:
            self._inner.take_turns(BULK_BYTES, self._shared.bulk_reads)

    async def _handshake(self, wire: asyncio.Transport) -> None:
        made = None
        hello = asyncio.ensure_future(self._start_tls(wire))
        try:
            while wire.get_protocol() is self and not hello.done():
                await asyncio.sleep(0)
            if wire.get_protocol() is not self and not wire.is_closing():
                wire.set_protocol(_Records(self, cast(asyncio.BufferedProtocol, wire.get_protocol())))
            if self._early and not hello.done():  # they came before TLS could take them
                early, self._early = self._early, b""
                reader = cast(asyncio.BufferedProtocol, wire.get_protocol())
                while early:
                    room = memoryview(reader.get_buffer(len(early)))
                    part, early = early[: len(room)], early[len(room) :]
                    room[: len(part)] = part
                    reader.buffer_updated(len(part))
            made = await hello
        except OSError:  # it was not TLS, or took too long
            pass
        finally:
            del hello  # its exception refers to this frame, and so would keep the whole connection alive
        self.leave()
        if made is None or self._is_lost or made.is_closing():
            wire.abort()
            return
        self._inner = inner = self._behind()
        inner.wire = wire
        made.set_protocol(inner)
        inner.connection_made(made)
        if self._early:
            inner.data_received(self._early)
            self._early = b""

    async def _start_tls(self, wire: asyncio.Transport) -> asyncio.Transport:
        if wire.is_closing():  # TLS would get that before it has begun, and then wait for the caller all the same
            raise ConnectionResetError
        hello_seconds = self._shared.tunables.hello_seconds
        made = await asyncio.get_running_loop().start_tls(
            wire, self, self._tls, server_side=True,
            ssl_handshake_timeout=hello_seconds, ssl_shutdown_timeout=FAREWELL_SECONDS,
        )  # fmt: skip
        if made is None:  # the caller has left during the handshake
            raise ConnectionResetError
        return made
