"""A persistent HTTP/1.1 connection to a replica. It sends a request, and passes the response on as it arrives."""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any, Protocol, cast

import httptools

from ..batching import BatchingTransport
from ..concurrency import room
from ..headers import LAST_DIGITS, PLAIN, nominated, without

# Headers of one connection rather than of a message (RFC 9110, 7.6.1), and headers that the proxy writes itself.
(_PASSED, _DROPPED, _LENGTH, _ENCODING, _CONNECTION) = range(5)
_OWN = {
    b"connection": _CONNECTION,
    b"keep-alive": _DROPPED,
    b"proxy-connection": _DROPPED,
    b"te": _DROPPED,
    b"trailer": _DROPPED,
    b"upgrade": _DROPPED,
    b"content-length": _LENGTH,
    b"transfer-encoding": _ENCODING,
    b"x-request-id": _DROPPED,  # The caller gets the proxy's own. Some servers return it too.
    b"content-type": _PASSED,
}
_OWN |= {name.title(): kind for name, kind in _OWN.items()}

_Known = tuple[int, bytes, int]
"""Status, header lines and length of a parsed response head, cached because replicas often repeat a head exactly."""
_KNOWN: dict[bytes, _Known] = {}
_MOST_KNOWN = 4096
END = b"\r\n\r\n"
_LONGEST_KNOWN = 1024
MOST_HEADERS = 64 * 1024
"""Limit of consecutive bytes outside a response's body: its head, or trailers."""
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux only. The kernel soon resets it (tcp(7)).
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 s: otherwise a closed port is unavailable for a minute. Hundreds of disconnecting callers per second
would use up all ports."""


def _learn(data: bytes, known: _Known) -> None:
    end = data.find(END, 0, _LONGEST_KNOWN) + len(END)
    if end >= len(END) and len(data) - end == known[2]:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[data[:end]] = known


class Receiver(Protocol):
    """Receives a response."""

    def answer_began(self, status: int, head: bytes, length: int | None) -> None:
        """Handle the status and the header lines. `length` is None if the body's end is not known in advance."""

    def answer_data(self, data: bytes) -> None:
        """Handle a part of the body."""

    def answer_ended(self) -> None:
        """Handle the end of the response."""

    def answer_came(self, status: int, head: bytes, length: int, data: bytes) -> None:
        """Handle a complete response that arrived in one piece."""

    def answer_failed(self, reason: str) -> None:
        """Handle that the response failed or broke off. `reason` is text for people."""

    def answer_broke(self, error: Exception) -> None:
        """End the call at once: the proxy failed to pass the response on, and has closed the connection."""

    def flush_answer(self) -> None:
        """Send the buffered data on."""

    def sending_paused(self, paused: bool) -> None:
        """Handle that the replica reads the request's body slowly, or again."""


class Home(Protocol):
    """The replica to which a connection leads."""

    family: int
    address: tuple[Any, ...]

    def give(self, connection: "Connection", now: float) -> None:
        """Take back a connection after its request is complete."""


class Connection(asyncio.BufferedProtocol):
    """An HTTP/1.1 connection to a replica. Requests are written to `transport`. Responses go to `receiver`."""

    __slots__ = (
        "_bare", "_began", "_between", "_ended", "_head", "_length", "_map", "_nominated", "_parser", "_room",
        "_skipped", "_whole", "alive", "idle_since", "keep", "receiver", "replica", "sock", "transport",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, replica: Home) -> None:
        self.sock = sock
        self.replica = replica
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.receiver: Receiver | None = None
        self.alive = False
        self.keep = True
        self.idle_since = 0.0
        self._room = room()
        self._map = self._room.map
        self._parser = httptools.HttpResponseParser(self)
        self._head: list[bytes] = []
        self._nominated: frozenset[bytes] = frozenset()
        self._length: int | None = None
        self._bare = 0  # Bytes since the last part of a body, or since the beginning.
        self._began = False
        self._skipped = False
        self._between = True
        self._ended = False
        self._whole: _Known | None = None

    # --- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, BatchingTransport(transport))
        self.alive = True

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return a buffer for received data. It is small while many responses may begin in one turn of the loop, and
        for streams, whose events are processed one by one."""
        return self._room.bulk if self._between or self._length in (None, -1) else self._room.whole

    def buffer_updated(self, size: int) -> None:
        data = self._map[:size]
        receiver = self.receiver
        if receiver is None:  # the data answers no request
            self.close()
            return
        try:
            if self._between:
                end = data.find(END, 0, _LONGEST_KNOWN) + len(END)
                known = _KNOWN.get(data[:end])  # it contains only complete heads
                if known is not None and len(data) - end == known[2]:
                    receiver.answer_came(*known, data[end:])
                    return
            self._take(data)
        except Exception as error:  # asyncio would only close the connection, which may have left its receiver
            if self.receiver in (None, receiver):  # otherwise the connection already has another call
                self.close()
            receiver.answer_broke(error)

    def _take(self, data: bytes) -> None:
        began, self._whole = self._between, None
        self._bare += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(why := error.__context__, Exception) and not isinstance(why, httptools.HttpParserError):
                raise why from None  # a defect of the receiver, not of the response
            if not self._ended:
                self._fail(f"its response is not valid HTTP ({type(error).__name__})")
                return
            self.keep = False
        if self._bare > MOST_HEADERS:
            self._fail(f"its headers have more than {MOST_HEADERS} bytes")
            return
        if self._ended:
            # Only now, so that data after the response is not taken for the response to another caller.
            self._ended = False
            if began and self._whole is not None and self.keep:
                _learn(data, self._whole)
            if self.receiver is not None:
                self.receiver.answer_ended()
        elif self.receiver is not None:
            self.receiver.flush_answer()

    def eof_received(self) -> bool | None:
        """Close the transport: replicas do not half-close."""
        self.alive = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, or fail it if it is incomplete."""
        self.alive, receiver = False, self.receiver
        if receiver is None:
            return
        try:
            if exc is None and self._began and self._length is None:
                receiver.answer_ended()  # a body without a length ends with its connection (RFC 9112, 6.3)
            else:
                self._fail(f"the connection was lost ({exc})" if exc else "it closed the connection")
        except Exception as error:  # asyncio would only log it
            receiver.answer_broke(error)

    def pause_writing(self) -> None:
        """Pause the request's body, because the replica reads slowly."""
        if self.receiver is not None:
            self.receiver.sending_paused(True)

    def resume_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.sending_paused(False)

    # --- httptools
    def on_message_begin(self) -> None:
        if self._ended:  # the data answers no request
            self.keep = False
            return
        self._between = False
        self._head = []
        self._length = None
        self._began = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, but drop a trailer (RFC 9110, 6.5.1)."""
        if self._ended or self._began:
            return
        own = _OWN.get(name)
        if own is None:
            own = _OWN.get(name.lower(), _PASSED)
        if own == _PASSED:
            self._head += (name, b": ", value, b"\r\n")
        elif own == _LENGTH:
            self._length = int(value[LAST_DIGITS])
        elif own == _ENCODING:
            if self._length == -1 or value.lower() != b"chunked":
                raise httptools.HttpParserError("its body has an unsupported transfer encoding")
            self._length = -1
        elif own == _CONNECTION and value not in PLAIN:
            self._nominated |= nominated(value)

    def on_headers_complete(self) -> None:
        if self._ended:
            return
        if self._nominated:
            self._head, self._nominated = without(self._head, self._nominated), frozenset()
        status = self._parser.get_status_code()
        self._skipped = status < 200  # an interim response (100, 103), before the final one
        if self._skipped:
            return
        self._began = True
        length = 0 if status in (204, 304) else self._length
        if self.receiver is not None:
            lines = b"".join(self._head)
            if length is None or length == -1:
                self.receiver.answer_began(status, lines, None)
            else:
                self._whole = (status, lines + b"content-length: %d\r\n" % length, length)
                self.receiver.answer_began(*self._whole)

    def on_body(self, body: bytes) -> None:
        self._bare = 0
        if self.receiver is not None and not self._ended:
            self.receiver.answer_data(body)

    def on_message_complete(self) -> None:
        self._between, self._bare = True, 0
        if not self._skipped and not self._ended:
            self._began = False
            self._ended = True
            self.keep = self._parser.should_keep_alive()

    def usable(self) -> bool:
        """Return whether a connection that was idle for long can take a request: the replica may have closed it."""
        if not self.alive or self.transport.is_closing():
            return False
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) and False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def acknowledge(self) -> None:
        """Acknowledge received data immediately instead of after up to 40 ms. Servers that leave Nagle's algorithm on,
        such as Dynamo's frontend, wait for that before they send the next small part of a stream."""
        if _QUICK_ACK is not None and self.alive:
            self.sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def close(self) -> None:
        """Abort the connection without notifying the receiver."""
        self.receiver = None
        self.alive = False
        if self.transport is not None:
            with suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.transport.abort()

    def _fail(self, reason: str) -> None:
        receiver, self.receiver = self.receiver, None
        self.close()
        if receiver is not None:
            receiver.answer_failed(reason)


async def connect(replica: Home, seconds: float) -> Connection:
    """Return a new connection. Raises OSError, or TimeoutError after `seconds`."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(replica.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(seconds):
            await loop.sock_connect(sock, replica.address)
            _, connection = await loop.create_connection(lambda: Connection(sock, replica), sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection
