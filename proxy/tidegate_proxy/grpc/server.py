"""The gRPC server: callers' connections, and the life of all calls."""

import asyncio
from pathlib import Path
from time import monotonic

from ..concurrency import ConcurrencyLimiter
from ..http2 import frames as h2
from ..http2.connection import Http2Connection
from ..http2.frames import Http2Error, literal
from ..http2.sending import Stream
from ..servers import ServerQueries
from ..shared_state import SharedState
from .call import Call
from .metadata import OF_MODELS, OF_PROXY, OK_HEADERS, RequestHeaders, status_trailers
from .proxy_call import GrpcContext, ProxyCall
from .response import CallerStream
from .upstreams import Upstreams

STREAM_WINDOW = 128 * 1024  # Bytes of a call that a caller may send before it is decided upon.
MOST_STREAMS = 256  # Calls at once on one connection.
IDLE_SECONDS = 600.0  # Seconds that a connection may stand open without a call.
WRITE_SECONDS = 1.0
PREFACE_SECONDS = 20.0
MOST_PIECES = 2048  # Frames that are gathered to be written at once.
READ_ON_SECONDS = 0.002
STUCK_SECONDS = 60.0  # Seconds after which a connection is ended whose caller takes nothing of what waits for it.
MOST_SILENT_SECONDS = 60
_NO_METHOD = OK_HEADERS + status_trailers(12, "There is no such method here.")  # UNIMPLEMENTED.
_PLAIN_HTTP = literal(b"content-length", b"0")
_STATUS_415 = literal(b":status", b"415") + _PLAIN_HTTP
_STATUS_405 = literal(b":status", b"405") + literal(b"allow", b"POST") + _PLAIN_HTTP


class CallerConnection(Http2Connection[RequestHeaders]):
    """A caller's connection; calls are streams that the caller opens."""

    stream_window = STREAM_WINDOW
    silent_seconds = MOST_SILENT_SECONDS

    def __init__(self, server: "GrpcServer") -> None:
        own = {h2.MAX_CONCURRENT_STREAMS: MOST_STREAMS, h2.MAX_HEADER_LIST_SIZE: h2.MOST_HEAD_BYTES}
        super().__init__(RequestHeaders, own, b"")
        self._server = server
        self._preface_read = b""
        self._has_preface = False
        self._stuck_bytes = 0
        self._stuck_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send this end's settings."""
        super().connection_made(transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what the caller waited for."""
        self._server.connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, after the preface that every connection begins with."""
        if not self._has_preface:
            self._preface_read += data
            if not h2.PREFACE.startswith(self._preface_read[: len(h2.PREFACE)]):
                self.end(h2.PROTOCOL_ERROR, "this is not HTTP/2")
                return
            if len(self._preface_read) < len(h2.PREFACE):
                return
            self._has_preface = True
            data, self._preface_read = self._preface_read[len(h2.PREFACE) :], b""
        super().data_received(data)
        if len(self._out) > MOST_PIECES:
            self._flush()
            if self.transport.get_write_buffer_size() > h2.MOST_UNWRITTEN and not self._paused:
                # The loop would go on reading for a while before it finds that the answers are not taken.
                self.transport.pause_reading()
                self.loop.call_later(READ_ON_SECONDS, self._read_on)

    def _read_on(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def stream_opened(self, number: int, headers: RequestHeaders, end: bool) -> None:
        """Begin a call, whatever it turns out to be."""
        if len(self.streams) >= MOST_STREAMS or self._server.closed:
            self.reset(number, h2.REFUSED_STREAM)
            return
        self._server.begin(self, number, headers, end)

    def half_closed(self, stream: Stream) -> None:
        """Refuse the rest of a request that is answered (RFC 9113, 8.1)."""
        self.reset(stream.number, h2.NO_ERROR)

    def late_headers_received(self) -> None:
        """End the connection: a call's headers come once, and nothing follows its end."""
        raise Http2Error(h2.STREAM_CLOSED, "headers came after a stream's end")

    def pause_writing(self) -> None:
        """Read no more, either: what is asked here is answered, and the caller takes no answers."""
        super().pause_writing()
        self._stuck_since = monotonic()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read requests again: the caller takes answers again."""
        super().resume_writing()
        self._read_on()

    def look(self, now: float) -> None:
        """End the connection if it does not begin, stands idle, or takes no answers."""
        if self._paused:
            unsent = self.transport.get_write_buffer_size()
            if unsent != self._stuck_bytes:
                self._stuck_bytes, self._stuck_since = unsent, now
            elif now - self._stuck_since > STUCK_SECONDS:
                self.transport.abort()
        elif not self._has_preface and now - self.last_used > PREFACE_SECONDS:
            self.transport.abort()
        elif not self.streams and now - self.last_used > IDLE_SECONDS:
            self.end()


class GrpcServer:
    """Takes calls from callers. `upstream_ca` is the folder of the CA files for TLS to replicas."""

    def __init__(self, shared: SharedState, servers: ServerQueries, upstream_ca: Path) -> None:
        upstreams = Upstreams(shared.settings.connect_timeout_seconds, upstream_ca)
        limiter = ConcurrencyLimiter(shared.settings.concurrency)
        self.context = GrpcContext(shared, upstreams, servers, limiter)
        self.connections: set[CallerConnection] = set()
        self.opened = 0  # Calls so far.
        self.closed = False

    def connection(self) -> CallerConnection:
        """Return the proxy's end of a new connection."""
        return CallerConnection(self)

    def begin(self, connection: CallerConnection, number: int, headers: RequestHeaders, end: bool) -> None:
        """Begin a call."""
        self.opened += 1
        stream, refusal = Stream(), _NO_METHOD
        if headers.method != b"POST":
            refusal = _STATUS_405
        elif not headers.content_type.startswith(b"application/grpc"):
            refusal = _STATUS_415
        elif (method := OF_MODELS.get(headers.path)) is not None:
            stream = Call(self.context, headers, method, connection.heard_at)
        elif (own := OF_PROXY.get(headers.path)) is not None:
            stream = ProxyCall(self.context, headers, own, connection.heard_at)
        connection.add(stream, number)
        stream.remote_closed = end
        if isinstance(stream, CallerStream):
            stream.begin(end)
        else:
            connection.send_headers(stream, refusal, True)

    # --- life
    def look(self) -> None:
        """End the connections that stand idle or stuck."""
        now = monotonic()
        for connection in list(self.connections):
            connection.look(now)

    def leave(self) -> None:
        """Tell callers to connect anew, and watchers that the proxy is not serving; calls still come and go."""
        for watcher in list(self.context.watchers):
            watcher.health_changed()
        for connection in list(self.connections):
            connection.goaway(h2.LARGEST_WINDOW)

    def close(self) -> None:
        """Take no more calls."""
        self.closed = True
        for watcher in list(self.context.watchers):
            watcher.leave()
        for connection in list(self.connections):
            if connection.streams:
                connection.goaway(connection.last_opened)
            else:
                connection.end()

    async def stop(self) -> None:
        """End the calls that are left, and every connection, as soon as what was sent is written."""
        for call in [each for each in self.context.shared.open_calls if isinstance(each, CallerStream)]:
            call.leave()
        for connection in list(self.connections):
            connection.end()
        end = monotonic() + WRITE_SECONDS
        while self.connections and monotonic() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
