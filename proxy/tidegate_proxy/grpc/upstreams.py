"""The gRPC connections to replicas, shared by calls; and whole calls of the proxy's own over them."""

import asyncio
import socket
import ssl
from functools import lru_cache
from itertools import chain
from pathlib import Path

from tidegate_contracts import proxy_process

from ..http2 import frames as h2
from ..http2.connection import Http2Connection
from ..http2.frames import encode_header
from ..http2.sending import Stream
from ..pools import Pool, answer_of
from ..shared_tasks import SharedTasks
from ..upstream.replica import Replica
from ..upstream.request import NoAnswerError
from .metadata import ResponseHeaders
from .protobuf import framed
from .response import Deadline, UpstreamStatusError

LANES = 4
"""Connections to one replica, at least, over which callers are spread: what ends one ends no call of most others."""
STREAM_WINDOW = 256 * 1024  # Bytes of an answer that may be here before its caller has taken any.
MOST_SILENT_SECONDS = 20  # Seconds after which a replica's machine that acknowledges nothing is taken for gone.


class UpstreamConnection(Http2Connection[ResponseHeaders]):
    """A connection to a replica; calls are streams that this end opens."""

    stream_window = STREAM_WINDOW
    opens_streams = True
    most_gathered = h2.OWN_FRAME
    most_head_bytes = h2.MOST_ANSWER_HEAD_BYTES
    silent_seconds = MOST_SILENT_SECONDS

    def __init__(self) -> None:
        own = {h2.ENABLE_PUSH: 0, h2.MAX_HEADER_LIST_SIZE: h2.MOST_ANSWER_HEAD_BYTES}
        super().__init__(ResponseHeaders, own, h2.PREFACE)
        self.leaving = False  # It takes no more calls.
        self.ends_idle = False  # It ends as soon as it has no call.

    @property
    def has_room(self) -> bool:
        """Whether it takes another call."""
        return self.alive and not self.leaving and len(self.streams) < self.most_streams

    def open(self, stream: Stream, block: bytes) -> None:
        """Begin a call with these headers."""
        number = self.last_opened + 2 if self.last_opened else 1
        self.last_opened = number
        self.add(stream, number)
        self.send_headers(stream, block)
        if number > h2.LARGEST_WINDOW - 2:
            self.leave()

    def leave(self) -> None:
        """Take no more calls, and end after the last."""
        self.leaving = True
        self.stream_ended()

    def goaway_received(self, last: int) -> None:
        """Take no more calls; those that the replica has not begun can be made elsewhere."""
        self.leaving = True
        for number in [number for number in self.streams if number > last]:
            if (stream := self.forget(number)) is not None:
                stream.reset_received(h2.REFUSED_STREAM, False)
        self.stream_ended()

    def stream_ended(self) -> None:
        """End with the last call, when leaving."""
        if (self.leaving or self.ends_idle) and not self.streams:
            self.leaving = True
            self.end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and have data that nobody acknowledges end the connection, too."""
        super().connection_made(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, MOST_SILENT_SECONDS * 1000)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self.leaving = True
        super().connection_lost(exc)


class UpstreamConnections:
    """To one replica, at an IP address and port; an attempt may take so many `seconds`.

    `authority` is the CA file that vouches for its certificate for `host`, None without TLS.
    """

    def __init__(self, address: tuple[str, int], host: str, authority: Path | None, seconds: float) -> None:
        self._address = address
        self._host = host
        self._authority = authority
        self._seconds = seconds
        self._lanes: list[list[UpstreamConnection]] = [[] for _ in range(LANES)]
        self._connecting: SharedTasks[int, None] = SharedTasks(outlives=True)
        self._left = False

    def take(self, caller: int = 0) -> UpstreamConnection | None:
        """Return a connection for a caller, by its number, that has room; None without any."""
        for connection in self._lanes[caller % LANES]:
            if connection.has_room:
                return connection
        return None

    async def connect(self, caller: int = 0) -> UpstreamConnection:
        """Return a connection that has room, a new one if need be; raises OSError, TimeoutError too.

        Calls that need one at the same time share it.
        """
        lane = caller % LANES
        while (connection := self.take(lane)) is None:
            await self._connecting.join(lane, lambda: self._add(lane))
        return connection

    def leave(self) -> None:
        """End the connections, each after its last call."""
        self._left = True
        for connection in chain(*self._lanes):
            connection.leave()

    async def _add(self, lane: int) -> None:
        tls = None
        if self._authority is not None:
            tls = ssl.create_default_context(cafile=str(self._authority))
            tls.minimum_version = ssl.TLSVersion.TLSv1_2
            tls.set_alpn_protocols(["h2"])
        async with asyncio.timeout(self._seconds):
            _, connection = await asyncio.get_running_loop().create_connection(
                UpstreamConnection, *self._address, ssl=tls, server_hostname=self._host if tls else None
            )
        connection.ends_idle = self._left
        self._lanes[lane] = [each for each in self._lanes[lane] if each.alive] + [connection]


class Upstreams:
    """The connections of one proxy. `connect_seconds` bounds each attempt; `authorities` is the folder of CA files."""

    def __init__(self, connect_seconds: float, authorities: Path) -> None:
        self._connect_seconds = connect_seconds
        self._authorities = authorities
        self._replicas: dict[Replica, UpstreamConnections] = {}

    def to(self, pool: Pool, replica: Replica) -> UpstreamConnections:
        """Return the connections to a replica."""
        found = self._replicas.get(replica)
        if found is None:
            config = pool.config
            assert config.grpc_port is not None  # else no call gets here: its kind speaks no gRPC
            authority = self._authorities / proxy_process.upstream_ca_file(pool.server) if config.grpc_tls else None
            address = replica.address[0], config.grpc_port
            found = UpstreamConnections(address, config.host, authority, self._connect_seconds)
            self._replicas[replica] = found
            replica.when_closed(lambda: self._replicas.pop(replica).leave())
        return found


def first_headers(pool: Pool, path: bytes) -> bytes:
    """Return the headers, as they are sent, that say which method of the pool's server is called."""
    config = pool.config
    return _first_headers(config.host, config.grpc_port, config.grpc_tls, path)


@lru_cache(maxsize=4096)
def _first_headers(host: str, port: int, tls: bool, path: bytes) -> bytes:
    # POST, and https or http, have numbers in every table (RFC 7541, appendix A).
    block = (b"\x83\x87" if tls else b"\x83\x86") + encode_header(b":path", path)
    block += encode_header(b":authority", f"{host}:{port}".encode())
    return block + encode_header(b"te", b"trailers") + encode_header(b"content-type", b"application/grpc")


MOST_BYTES = 64 * 1024 * 1024  # Bytes of an answer.


class _UnaryCall(Stream):
    """Gathers an answer."""

    def __init__(self) -> None:
        self.messages = bytearray()
        self._done: asyncio.Future[ResponseHeaders | None] = asyncio.get_running_loop().create_future()

    async def send(self, connection: UpstreamConnection, headers: bytes, message: bytes) -> ResponseHeaders | None:
        """Make the call, and return what ended the answer: None where that was no status."""
        connection.open(self, headers)
        connection.send_data(self, message, True)
        try:
            return await self._done
        finally:
            if not self.remote_closed:
                connection.reset(self.number, h2.CANCEL)

    def headers_received(self, headers: ResponseHeaders, end: bool) -> None:
        if end or headers.status not in (0, 200):
            self._end(headers)

    def data_received(self, data: bytes, end: bool) -> None:
        self.messages += data
        self.connection.credit(self, len(data))
        if end or len(self.messages) > MOST_BYTES:
            self._end(None)

    def reset_received(self, _code: int | None, _processed: bool) -> None:
        self._end(None)

    def _end(self, headers: ResponseHeaders | None) -> None:
        if not self._done.done():
            self._done.set_result(headers)


async def ask(
    upstreams: Upstreams, pool: Pool, path: bytes, message: bytes, deadline: Deadline, at: Replica | None = None
) -> bytes:
    """Return the message that a replica answers with, see `answer_of`; raises Problem, or UpstreamStatusError."""

    async def call_once(replica: Replica) -> bytes:
        call, connection = _UnaryCall(), await upstreams.to(pool, replica).connect()
        head = await call.send(connection, first_headers(pool, path), framed(message))
        if head is not None and head.grpc_status:
            raise UpstreamStatusError(head.block, head.grpc_status)
        found = bytes(call.messages)
        if head is None or head.grpc_status is None or len(found) < 5 or found[1:5] != (len(found) - 5).to_bytes(4):
            raise NoAnswerError("it gave no whole answer")
        return found[5:]

    return await answer_of(pool, call_once, deadline.left, at, own_bound=deadline.is_own)
