"""Kept connections to a replica: calls share one for as long as it has room."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

from .frames import ENABLE_PUSH, LARGEST_WINDOW, PREFACE, REFUSED_STREAM
from .heads import AnswerHead, Fields
from .link import Link
from .stream import Stream

STREAM_WINDOW = 256 * 1024
"""Bytes of an answer that may be here before its caller has taken any."""
MOST_SILENT_SECONDS = 20
"""Seconds after which a replica's machine that acknowledges nothing is taken for gone."""


class Line(Link[AnswerHead]):
    """A connection to a replica; calls are streams that this end opens."""

    stream_window = STREAM_WINDOW

    def __init__(self) -> None:
        super().__init__({ENABLE_PUSH: 0}, PREFACE)
        self.leaving = False
        """Whether it takes no more calls."""
        self.ends_idle = False
        """Whether it ends as soon as there is no call."""

    def understand(self, fields: Fields) -> AnswerHead:
        """Return what an answer's headers say."""
        return AnswerHead(fields)

    @property
    def has_room(self) -> bool:
        """Whether it takes another call."""
        return self.alive and not self.leaving and len(self.streams) < self.most_streams

    def open(self, stream: Stream, block: bytes) -> None:
        """Begin a call."""
        number = self.last_opened + 2 if self.last_opened else 1
        self.last_opened = number
        self.add(stream, number)
        self.send_head(stream, block)
        if number > LARGEST_WINDOW - 2:
            self.leave()

    def leave(self) -> None:
        """Take no more calls, and end after the last."""
        self.leaving = True
        self.stream_ended()

    def left(self, last: int) -> None:
        """Take no more calls. Those that the replica has not begun can be made elsewhere."""
        self.leaving = True
        for number in [number for number in self.streams if number > last]:
            if (stream := self.forget(number)) is not None:
                stream.take_reset(REFUSED_STREAM, False)
        self.stream_ended()

    def stream_ended(self) -> None:
        """End with the last call, when leaving."""
        if (self.leaving or self.ends_idle) and not self.streams:
            self.leaving = True
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self.leaving = True
        super().connection_lost(exc)


class Lines:
    """Of one replica."""

    def __init__(self, family: int, address: tuple[Any, ...], host: str, authority: Path | None) -> None:
        self._family = family
        self._address = address
        self._host = host
        self._authority = authority
        self._lines: list[Line] = []
        self._connecting: asyncio.Task[None] | None = None
        self._left = False

    def take(self) -> Line | None:
        """Return a connection that has room; None when there is none."""
        for line in self._lines:
            if line.has_room:
                return line
        return None

    async def connect(self, seconds: float) -> Line:
        """Return a connection that has room, a new one if need be; raises OSError, or TimeoutError after `seconds`.

        Whoever needs one at the same time shares it.
        """
        while (line := self.take()) is None:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._add(seconds))
                self._connecting.add_done_callback(_looked_at)
            await asyncio.shield(self._connecting)
        return line

    def leave(self) -> None:
        """End the connections, each after its last call."""
        self._left = True
        for line in self._lines:
            line.leave()

    async def _add(self, seconds: float) -> None:
        # All within the task: who awaits one that has ended goes on at once, and must find what came of it.
        try:
            line = await self._connect(seconds)
            line.ends_idle = self._left
            self._lines = [each for each in self._lines if each.alive] + [line]
        finally:
            self._connecting = None

    async def _connect(self, seconds: float) -> Line:
        loop = asyncio.get_running_loop()
        tls = None
        if self._authority is not None:
            tls = ssl.create_default_context(cafile=str(self._authority))
            tls.minimum_version = ssl.TLSVersion.TLSv1_2
            tls.set_alpn_protocols(["h2"])
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, MOST_SILENT_SECONDS * 1000)
            keep_alive(sock, MOST_SILENT_SECONDS)
            async with asyncio.timeout(seconds):
                await loop.sock_connect(sock, self._address)
                host = self._host if tls is not None else None
                _, line = await loop.create_connection(Line, sock=sock, ssl=tls, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return line


def _looked_at(task: "asyncio.Task[None]") -> None:
    """Leave no failure unseen, for those who waited may all have gone."""
    if not task.cancelled():
        task.exception()


def keep_alive(sock: socket.socket, seconds: int) -> None:
    """Let the system find out about a peer that is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", max(1, seconds // 4)), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
