"""The gRPC connections to replicas, which calls share, and complete unary calls by the proxy itself."""

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
"""Minimum number of connections per replica. Callers are spread over them, so that losing one affects few callers."""
STREAM_WINDOW = 256 * 1024  # Bytes of a response that a replica can send before the caller reads any.
MOST_SILENT_SECONDS = 20  # Time without a TCP acknowledgement after which a replica's machine counts as gone.


class UpstreamConnection(Http2Connection[ResponseHeaders]):
    """A connection to a replica. Calls are streams that this end opens."""

    stream_window = STREAM_WINDOW
    opens_streams = True
    most_gathered = h2.OWN_FRAME
    most_head_bytes = h2.MOST_ANSWER_HEAD_BYTES
    silent_seconds = MOST_SILENT_SECONDS

    def __init__(self) -> None:
        own = {h2.ENABLE_PUSH: 0, h2.MAX_HEADER_LIST_SIZE: h2.MOST_ANSWER_HEAD_BYTES}
        super().__init__(ResponseHeaders, own, h2.PREFACE)
        self.leaving = False  # Whether it accepts no more calls.
        self.ends_idle = False  # Whether it closes as soon as it has no call.

    @property
    def has_room(self) -> bool:
        return self.alive and not self.leaving and len(self.streams) < self.most_streams

    def open(self, stream: Stream, block: bytes) -> None:
        number = self.last_opened + 2 if self.last_opened else 1
        self.last_opened = number
        self.add(stream, number)
        self.send_headers(stream, block)
        if number > h2.LARGEST_WINDOW - 2:
            self.leave()

    def leave(self) -> None:
        """Accept no more calls, and close after the last one."""
        self.leaving = True
        self.stream_ended()

    def goaway_received(self, last: int) -> None:
        """Accept no more calls. Calls that the replica has not begun can be sent elsewhere."""
        self.leaving = True
        for number in [number for number in self.streams if number > last]:
            if (stream := self.forget(number)) is not None:
                stream.reset_received(h2.REFUSED_STREAM, False)
        self.stream_ended()

    def stream_ended(self) -> None:
        if (self.leaving or self.ends_idle) and not self.streams:
            self.leaving = True
            self.end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection, and a timeout for unacknowledged data."""
        super().connection_made(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, MOST_SILENT_SECONDS * 1000)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leaving = True
        super().connection_lost(exc)


class UpstreamConnections:
    """The connections to one replica, at an IP address and port. `seconds` is the timeout of a connection attempt.
    `authority` is the CA file for `host`'s certificate, or None without TLS."""

    def __init__(self, address: tuple[str, int], host: str, authority: Path | None, seconds: float) -> None:
        self._address = address
        self._host = host
        self._authority = authority
        self._seconds = seconds
        self._lanes: list[list[UpstreamConnection]] = [[] for _ in range(LANES)]
        self._connecting: SharedTasks[int, None] = SharedTasks(outlives=True)
        self._left = False

    def take(self, caller: int = 0) -> UpstreamConnection | None:
        """Return a connection of this caller that accepts another call, if there is one."""
        for connection in self._lanes[caller % LANES]:
            if connection.has_room:
                return connection
        return None

    async def connect(self, caller: int = 0) -> UpstreamConnection:
        """Return a connection that accepts another call, a new one if necessary. Calls that need one at the same time
        share it. Raises OSError, including TimeoutError."""
        lane = caller % LANES
        while (connection := self.take(lane)) is None:
            await self._connecting.join(lane, lambda: self._add(lane))
        return connection

    def leave(self) -> None:
        """Close each connection after its last call."""
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
    """The connections of one proxy. `connect_seconds` is the timeout of an attempt. `authorities` has the CA files."""

    def __init__(self, connect_seconds: float, authorities: Path) -> None:
        self._connect_seconds = connect_seconds
        self._authorities = authorities
        self._replicas: dict[Replica, UpstreamConnections] = {}

    def to(self, pool: Pool, replica: Replica) -> UpstreamConnections:
        found = self._replicas.get(replica)
        if found is None:
            config = pool.config
            assert config.grpc_port is not None  # calls get here only if the server's kind supports gRPC
            authority = self._authorities / proxy_process.upstream_ca_file(pool.server) if config.grpc_tls else None
            address = replica.address[0], config.grpc_port
            found = UpstreamConnections(address, config.host, authority, self._connect_seconds)
            self._replicas[replica] = found
            replica.when_closed(lambda: self._replicas.pop(replica).leave())
        return found


def first_headers(pool: Pool, path: bytes) -> bytes:
    """Return the encoded headers that name the method and the pool's server."""
    config = pool.config
    return _first_headers(config.host, config.grpc_port, config.grpc_tls, path)


@lru_cache(maxsize=4096)
def _first_headers(host: str, port: int, tls: bool, path: bytes) -> bytes:
    # POST, https and http are in HPACK's static table (RFC 7541, appendix A).
    block = (b"\x83\x87" if tls else b"\x83\x86") + encode_header(b":path", path)
    block += encode_header(b":authority", f"{host}:{port}".encode())
    return block + encode_header(b"te", b"trailers") + encode_header(b"content-type", b"application/grpc")


MOST_BYTES = 64 * 1024 * 1024  # Bytes of a response.


class _UnaryCall(Stream):
    """Collects a response."""

    def __init__(self) -> None:
        self.messages = bytearray()
        self._done: asyncio.Future[ResponseHeaders | None] = asyncio.get_running_loop().create_future()

    async def send(self, connection: UpstreamConnection, headers: bytes, message: bytes) -> ResponseHeaders | None:
        """Make the call. Return the headers or trailers that ended the response, or None if it ended without them."""
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


async def call_replica(
    upstreams: Upstreams, pool: Pool, path: bytes, message: bytes, deadline: Deadline, at: Replica | None = None
) -> bytes:
    """Return a replica's response message (see `answer_of`). Raises Problem or UpstreamStatusError."""

    async def call_once(replica: Replica) -> bytes:
        call, connection = _UnaryCall(), await upstreams.to(pool, replica).connect()
        head = await call.send(connection, first_headers(pool, path), framed(message))
        if head is not None and head.grpc_status:
            raise UpstreamStatusError(head.block, head.grpc_status)
        found = bytes(call.messages)
        if head is None or head.grpc_status is None or len(found) < 5 or found[1:5] != (len(found) - 5).to_bytes(4):
            raise NoAnswerError("incomplete response")
        return found[5:]

    return await answer_of(pool, call_once, deadline.left, at, own_bound=deadline.is_own)
