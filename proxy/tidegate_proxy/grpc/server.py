"""The gRPC server: callers' connections, and the start and end of all calls."""

import asyncio
from pathlib import Path
from time import monotonic

from ..concurrency import ConcurrencyLimiter
from ..guests import MOST_UNSENT, AccountedConnection
from ..http2 import frames as h2
from ..http2.connection import Http2Connection
from ..http2.frames import Http2Error, encode_header
from ..http2.sending import Stream
from ..servers import ServerQueries
from ..shared_state import SharedState
from .call import Call
from .metadata import OF_MODELS, OF_PROXY, OK_HEADERS, RequestHeaders, status_trailers
from .proxy_call import GrpcContext, ProxyCall
from .response import CallerStream
from .upstream_stream import UpstreamStream
from .upstreams import Upstreams

STREAM_WINDOW = 128 * 1024  # Bytes of a call that a caller can send before the call is authorised.
MOST_STREAMS = 256  # Simultaneous calls on one connection.
IDLE_SECONDS = 600.0  # Time after which a connection without a call is closed.
WRITE_SECONDS = 1.0
PREFACE_SECONDS = 20.0
MOST_PIECES = 2048  # Frames that are collected for one write.
STUCK_SECONDS = 60.0  # A connection is cut if its caller reads nothing of the waiting data for this long.
MOST_SILENT_SECONDS = 60
MOST_WORK = 128  # Work for one caller, in frames, in one turn of the loop.
_NO_METHOD = OK_HEADERS + status_trailers(12, "The proxy does not have this method.")  # UNIMPLEMENTED.
_PLAIN_HTTP = encode_header(b"content-length", b"0")
_STATUS_415 = encode_header(b":status", b"415") + _PLAIN_HTTP
_STATUS_405 = encode_header(b":status", b"405") + encode_header(b"allow", b"POST") + _PLAIN_HTTP


class CallerConnection(AccountedConnection, Http2Connection[RequestHeaders]):
    """A caller's connection. Calls are streams that the caller opens."""

    most_work = MOST_WORK
    stream_window = STREAM_WINDOW
    silent_seconds = MOST_SILENT_SECONDS

    def __init__(self, server: "GrpcServer") -> None:
        own = {h2.MAX_CONCURRENT_STREAMS: MOST_STREAMS, h2.MAX_HEADER_LIST_SIZE: h2.MOST_HEAD_BYTES}
        super().__init__(RequestHeaders, own, b"")
        self._server = server
        self.tunables = server.context.shared.tunables
        self._preface_read = b""
        self._has_preface = False
        self._stuck_bytes = 0
        self._stuck_since = 0.0
        self._awaits_turn = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the proxy's settings, and register the connection."""
        super().connection_made(transport)
        self._server.connections.add(self)
        if not self.arrive(self._server.context.shared.memory):
            self.evict()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        super().connection_lost(exc)
        self.lost()

    def _count_control_frame(self) -> None:
        try:
            super()._count_control_frame()
        except Http2Error:
            self.memory.count_cut("chatter")
            raise

    def evict(self) -> None:
        super().evict()
        self.end_streams()
        self.end(h2.ENHANCE_YOUR_CALM, "the proxy's limit for unauthenticated connections is reached")
        self._flush()
        self.abort_if_slow()

    def data_received(self, data: bytes) -> None:
        """Process received data, after HTTP/2's connection preface."""
        size = len(data)
        if not self._has_preface:
            self._preface_read += data
            if not h2.PREFACE.startswith(self._preface_read[: len(h2.PREFACE)]):
                self.end(h2.PROTOCOL_ERROR, "this is not HTTP/2")
                return
            if len(self._preface_read) < len(h2.PREFACE):
                return
            self._has_preface = True
            data, self._preface_read = self._preface_read[len(h2.PREFACE) :], b""
        if len(data) > MOST_UNSENT:
            self.count_at_once(len(data))
        self._take(data)
        self.take_turns(size, self._server.context.shared.bulk_reads)

    def _take(self, data: bytes) -> None:
        Http2Connection.data_received(self, data)
        if len(self._out) > MOST_PIECES:
            self._flush()
        elif self.unread_bytes or self.booking.size != self.base_bytes:
            self._hold()
        if self.is_behind:
            self.listen()
            self._await_turn()

    def _await_turn(self) -> None:
        if not self._awaits_turn:
            self._awaits_turn = True
            self._server.context.shared.long_work.add(self.owner, self._read_on)

    def _read_on(self) -> None:
        self._awaits_turn = False
        if not (self._paused or self.transport.is_closing() or self.is_ending):
            self._take(b"")
            self.listen()

    def listen(self) -> None:
        """Read from the caller, unless there is data to be processed first or the caller reads no responses."""
        if not self.transport.is_closing():
            reads = not (self.is_behind or self._paused or self.is_bulk)
            (self.wire.resume_reading if reads else self.wire.pause_reading)()

    def _hold(self) -> None:
        """Count the memory of unprocessed and unsent data. End the connection if that is too much."""
        unsent = self.unsent
        more = self.unread_bytes + (unsent if unsent > MOST_UNSENT else 0)
        if self.base_bytes + more == self.booking.size or self.holds(more):
            return
        if not self.is_ending:
            self.memory.count_cut("held")
        if not self._paused:
            self.end(h2.ENHANCE_YOUR_CALM, "the proxy's buffer limit is reached: send less, and read responses faster")
            super()._flush()
        if self._paused or self.is_over_tls:
            self.transport.abort()

    def _flush(self) -> None:
        super()._flush()
        if self.alive:
            self._hold()

    def stream_opened(self, number: int, headers: RequestHeaders, end: bool) -> None:
        if headers.are_trailers or (end and headers.content_length):
            self.reset(number, h2.PROTOCOL_ERROR)
            return
        if len(self.streams) >= MOST_STREAMS or self._server.closed:
            self.reset(number, h2.REFUSED_STREAM)
            return
        self._server.begin(self, number, headers, end)

    def half_closed(self, stream: Stream) -> None:
        """Reset the rest of a request that already has its response (RFC 9113, 8.1)."""
        self.reset(stream.number, h2.NO_ERROR)

    def may_follow(self, head: RequestHeaders, end: bool) -> bool:
        """Return whether the headers are trailers that end a request (RFC 9113, 8.1)."""
        return head.are_trailers and end

    def late_headers_received(self) -> None:
        """End the connection, unless the headers can be trailers of a call that this end has reset."""
        if not self.late_frames_due:
            raise Http2Error(h2.STREAM_CLOSED, "the peer sent headers after the end of a stream")
        self.late_frames_due -= 1

    def pause_writing(self) -> None:
        """Pause reading too: the proxy would answer requests, but the caller reads no responses."""
        super().pause_writing()
        self._stuck_since = monotonic()
        self.listen()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._hold()
        if self.is_behind:
            self._await_turn()
        self.listen()

    def look(self, now: float) -> None:
        """End the connection if it sends no preface, is idle, or reads no responses."""
        if self.booking.size > self.base_bytes:
            self._hold()
        if self._paused:
            unsent = self.unsent
            if unsent != self._stuck_bytes:
                self._stuck_bytes, self._stuck_since = unsent, now
            elif now - self._stuck_since > STUCK_SECONDS:
                self.transport.abort()
        elif not self._has_preface and now - self.last_used > PREFACE_SECONDS:
            self.transport.abort()
        elif not self.streams and now - self.last_used > IDLE_SECONDS:
            self.end()


class GrpcServer:
    """Accepts calls. `upstream_ca` is the directory of the CA files for TLS to replicas."""

    def __init__(self, shared: SharedState, servers: ServerQueries, upstream_ca: Path) -> None:
        upstreams = Upstreams(shared.settings.connect_timeout_seconds, upstream_ca)
        limiter = ConcurrencyLimiter(shared.settings.concurrency)
        self.context = GrpcContext(shared, upstreams, servers, limiter)
        self.connections: set[CallerConnection] = set()
        self.opened = 0  # Number of calls so far.
        self.closed = False

    def connection(self) -> CallerConnection:
        return CallerConnection(self)

    def begin(self, connection: CallerConnection, number: int, headers: RequestHeaders, end: bool) -> None:
        self.opened += 1
        stream, refusal = Stream(), _NO_METHOD
        if headers.method != b"POST":
            refusal = _STATUS_405
        elif not headers.content_type.startswith(b"application/grpc"):
            refusal = _STATUS_415
        elif (method := OF_MODELS.get(headers.path)) is not None:
            stream = Call(self.context, headers, method, connection.last_read)
        elif (own := OF_PROXY.get(headers.path)) is not None:
            stream = ProxyCall(self.context, headers, own, connection.last_read)
        connection.add(stream, number)
        stream.remote_closed, stream.announced = end, headers.content_length
        if isinstance(stream, CallerStream):
            stream.begin(end, connection)
        else:
            connection.send_headers(stream, refusal, True)

    def look(self) -> None:
        """End connections that are idle or stuck."""
        now = monotonic()
        for connection in list(self.connections):
            connection.look(now)

    def leave(self) -> None:
        """Make callers open a new connection for further calls. Calls on this one still proceed."""
        for connection in list(self.connections):
            connection.goaway(h2.LARGEST_WINDOW)

    def close(self) -> None:
        """Accept no more calls."""
        self.closed = True
        for call in [each for each in self.context.shared.open_calls if isinstance(each, UpstreamStream)]:
            call.expire()  # its caller has disconnected
        for connection in list(self.connections):
            if connection.streams:
                connection.goaway(connection.last_opened)
            else:
                connection.end()

    async def stop(self) -> None:
        """End the remaining calls, and close every connection when its data is written."""
        for call in [each for each in self.context.shared.open_calls if isinstance(each, CallerStream)]:
            call.leave()
        for connection in list(self.connections):
            connection.end()
        end = monotonic() + WRITE_SECONDS
        while self.connections and monotonic() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
