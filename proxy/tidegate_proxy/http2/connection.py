"""Either end of an HTTP/2 connection. It passes data to its streams as it arrives."""

import asyncio
import socket
import sys
from collections.abc import Callable
from time import monotonic
from typing import Generic, cast

from ..settings import Tunables
from . import frames as h2
from .frames import Fields, Http2Error, MalformedHeadersError, Understood, frame
from .header_reader import HeaderReader, too_long_headers
from .sending import Sender, Stream

MOST_CONTINUATIONS = 16  # Parts of a header block.
WORK_OF_CALL = 16  # Cost of a frame that begins, feeds or ends a call, in other frames.
BYTES_OF_WORK = 8  # Bytes of uncached headers that cost as much as another frame.
DATA, HEADERS, CONTINUATION, PADDED, END_STREAM = h2.DATA, h2.HEADERS, h2.CONTINUATION, h2.PADDED, h2.END_STREAM
_SIZES = {h2.RST_STREAM: 4, h2.PING: 8, h2.PRIORITY: 5}
_OF_CALLS = frozenset({h2.HEADERS, h2.CONTINUATION, h2.DATA, h2.RST_STREAM})
_OF_CONNECTION = frozenset({h2.SETTINGS, h2.PING, h2.GOAWAY})


class Http2Connection(Sender, Generic[Understood]):
    """The base of the server's end, `grpc.server.CallerConnection`, and of the client's, `UpstreamConnection`.

    `parse_fields` converts headers for the streams, or raises MalformedHeadersError. `own` are this end's settings, and
    `preface` is sent before them.
    """

    most_head_bytes = h2.MOST_HEAD_BYTES  # Limit of one header block, both compressed and decompressed.
    most_gathered = h2.MOST_GATHERED  # Bytes of a received frame other than DATA.
    most_work = sys.maxsize  # How many frames are processed in one turn of the loop.
    tunables = Tunables()
    opens_streams = False  # Whether this end opens the streams. The peer can then reset each without a limit.
    silent_seconds: int  # Time after which the system ends the connection if the peer's machine is silent.

    def __init__(self, parse_fields: Callable[[Fields], Understood], own: dict[int, int], preface: bytes) -> None:
        super().__init__()
        self.last_read = self.last_used
        self.has_settings = False
        self.most_streams = h2.LARGEST_WINDOW  # How many simultaneous streams the peer allows.
        self._own = {h2.INITIAL_WINDOW_SIZE: self.stream_window, h2.MAX_FRAME_SIZE: h2.OWN_FRAME, **own}
        self._preface = preface
        self._headers = HeaderReader(parse_fields, self.most_head_bytes)
        self._rest = b""
        self._data_stream = 0
        self._data_left = 0
        self._data_ends = False
        self._open_block: tuple[int, int, list[bytes]] | None = None
        self._receive_window = h2.CONNECTION_WINDOW
        self.control_frames = 0  # Recently received frames that move no data.
        self._control_frames_since = self.last_used
        self.is_behind = False  # Whether received data waits for the next turn.
        self._is_wider = False  # Whether a window has just grown.

    # --- for the two ends
    def stream_opened(self, _number: int, _head: Understood, _end: bool) -> None:
        """Handle a stream that the peer opens with these headers."""

    def may_follow(self, _head: Understood, _end: bool) -> bool:
        """Return whether such headers are allowed after those that opened a stream."""
        return True

    def late_headers_received(self) -> None:
        """Handle headers of a stream that has ended at this end."""

    def goaway_received(self, last: int) -> None:
        """Note that the peer processes no streams after `last`."""

    # --- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=h2.MOST_UNWRITTEN)
        if (sock := transport.get_extra_info("socket")) is not None:
            _keep_alive(sock, self.silent_seconds)
        self.alive = True
        own = b"".join(h2.SETTING.pack(name, value) for name, value in self._own.items())
        self.write(self._preface + frame(h2.SETTINGS, 0, 0, own))
        self.write(frame(h2.WINDOW_UPDATE, 0, 0, h2.UINT32.pack(h2.CONNECTION_WINDOW - h2.DEFAULT_WINDOW)))

    def connection_lost(self, _: Exception | None) -> None:
        self.alive = False
        if self._cut is not None:
            self._cut.cancel()  # it refers to the connection
        self.end_streams()
        # Calls and connection refer to each other until Python's garbage collection: free the data now.
        self._rest, self._open_block = b"", None

    def end_streams(self) -> None:
        for number in list(self.streams):
            if (stream := self.forget(number)) is not None:
                stream.reset_received(None, self.has_settings)

    def eof_received(self) -> bool | None:
        """Close the transport: HTTP/2 peers do not half-close."""
        return False

    def data_received(self, data: bytes) -> None:
        """Process received data: each complete frame, and DATA as it arrives."""
        self.last_read = monotonic()
        if self._rest:
            data = self._rest + data
            self._rest = b""
        try:
            at = self._read(data)
        except Http2Error as error:
            self.end(error.code, str(error))
            return
        if at < len(data):
            self._rest = data[at:]
        quiet = self.last_read - self._control_frames_since if self.control_frames and not self.is_behind else 0.0
        if quiet > self.tunables.control_seconds:
            # Reset only now: otherwise a peer that sends faster than this end reads could continue forever.
            self.control_frames, self._control_frames_since = 0, self.last_read
        if self._is_wider:
            # Once for all updates that arrived together: each of them could move a little of every stream.
            self._is_wider = False
            self.pump()

    @property
    def unread_bytes(self) -> int:
        """Bytes of received data that is not processed yet: part of a frame, incomplete headers, or postponed data."""
        return len(self._rest) + (sum(map(len, self._open_block[2])) if self._open_block is not None else 0)

    # --- reading
    def _read(self, data: bytes) -> int:
        """Process complete frames and available DATA, up to the limit of one turn. Return the position after them."""
        at, size, work = 0, len(data), self.most_work
        self.is_behind = False
        while not self.is_ending:
            work -= 1
            if work < 0:
                self.is_behind = True
                return at
            if self._data_left:
                take = min(self._data_left, size - at)
                if not take:
                    return at
                self._data_left -= take
                part = data[at : at + take] if take < size else data
                at += take
                self._take_data(self._data_stream, part, self._data_ends and not self._data_left)
                continue
            if size - at < 9:
                return at
            high, low, kind, flags, number = h2.FRAME_HEADER.unpack_from(data, at)
            length = high << 8 | low
            number &= h2.LARGEST_WINDOW
            if self._open_block is not None and (kind != CONTINUATION or number != self._open_block[0]):
                raise Http2Error(h2.PROTOCOL_ERROR, "a header block was not completed")
            if kind == DATA and not flags & PADDED:
                work -= WORK_OF_CALL
                if length > h2.OWN_FRAME:
                    raise Http2Error(h2.FRAME_SIZE_ERROR, "a frame is too long")
                at += 9
                end = bool(flags & END_STREAM)
                self._count_data(number, length)
                if length <= size - at:
                    self._take_data(number, data[at : at + length], end)
                    at += length
                else:
                    self._data_stream, self._data_left, self._data_ends = number, length, end
                continue
            if length > (h2.OWN_FRAME if kind == DATA else self.most_gathered):
                raise Http2Error(h2.FRAME_SIZE_ERROR, "a frame is too long")
            if size - at < 9 + length:
                return at
            before = self._headers.bytes_read
            self._take_frame(kind, flags, number, data[at + 9 : at + 9 + length])
            if kind in _OF_CALLS:
                work -= WORK_OF_CALL + (self._headers.bytes_read - before) // BYTES_OF_WORK
            at += 9 + length
        return size

    def _take_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not self.has_settings and kind != h2.SETTINGS:
            raise Http2Error(h2.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == HEADERS:
            if flags & PADDED:
                payload = h2.unpadded(payload)
            if flags & h2.WITH_PRIORITY:
                if len(payload) < 5:
                    raise Http2Error(h2.FRAME_SIZE_ERROR, "HEADERS is too short for its priority")
                payload = payload[5:]
            if flags & h2.END_HEADERS:
                self._take_block(number, payload, bool(flags & END_STREAM))
            else:
                self._open_block = number, flags, [payload]
        elif kind == CONTINUATION:
            if self._open_block is None:
                raise Http2Error(h2.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
            self._continue_block(flags, payload)
        elif kind == h2.WINDOW_UPDATE:
            if self.updates_due:
                self.updates_due = min(self.updates_due, self.tunables.control_frames) - 1
            else:
                self._count_frame_of(number)
            self._take_window(number, payload)
        elif kind == DATA:
            self._count_data(number, len(payload))
            self._take_data(number, h2.unpadded(payload), bool(flags & END_STREAM), len(payload))
        else:
            if kind != h2.RST_STREAM:
                self._count_frame_of(number)
            self._take_rare(kind, flags, number, payload)

    def _take_rare(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if number if kind in _OF_CONNECTION else kind == h2.PRIORITY and not number:
            raise Http2Error(h2.PROTOCOL_ERROR, "a frame has the wrong stream number")
        if len(payload) != (size := _SIZES.get(kind, len(payload))):
            raise Http2Error(h2.FRAME_SIZE_ERROR, f"a frame of this type must have {size} bytes")
        if kind == h2.RST_STREAM:
            if self._is_idle(number):
                raise Http2Error(h2.PROTOCOL_ERROR, "RST_STREAM for an idle stream")
            self._take_reset(number, h2.UINT32.unpack(payload)[0])
        elif kind == h2.SETTINGS:
            if len(payload) % 6 or (payload and flags & h2.ACK):
                raise Http2Error(h2.FRAME_SIZE_ERROR, "SETTINGS has the wrong length")
            if not flags & h2.ACK:
                self._take_settings(payload)
        elif kind == h2.PING:
            if not flags & h2.ACK:
                self.write(frame(h2.PING, h2.ACK, 0, payload))
        elif kind == h2.GOAWAY:
            if len(payload) < 8:
                raise Http2Error(h2.FRAME_SIZE_ERROR, "GOAWAY is too short")
            self.goaway_received(h2.UINT32.unpack_from(payload)[0] & h2.LARGEST_WINDOW)
        elif kind == h2.PUSH_PROMISE:
            raise Http2Error(h2.PROTOCOL_ERROR, "PUSH_PROMISE is not allowed")

    def _take_reset(self, number: int, code: int) -> None:
        if (stream := self.forget(number)) is None:
            self._count_frame_of(number)
            return
        stream.reset_received(code, code != h2.REFUSED_STREAM)  # before an error can end the connection
        if not self.opens_streams:
            self._count_control_frame()

    def _continue_block(self, flags: int, payload: bytes) -> None:
        assert self._open_block is not None
        number, first, parts = self._open_block
        parts.append(payload)
        if sum(map(len, parts)) > self.most_head_bytes or len(parts) > MOST_CONTINUATIONS:
            raise too_long_headers(self.most_head_bytes)
        if flags & h2.END_HEADERS:
            self._open_block = None
            self._take_block(number, b"".join(parts), bool(first & END_STREAM))

    def _take_block(self, number: int, block: bytes, end: bool) -> None:
        if len(block) > self.most_head_bytes:
            raise too_long_headers(self.most_head_bytes)
        stream = self.streams.get(number)
        try:
            head = self._headers.read(block)
        except MalformedHeadersError:
            if stream is None and not self._is_idle(number):
                self.late_headers_received()
                return
            if stream is None:
                self._note_opened(number)
            self._refuse_stream(number, stream)
            return
        if stream is not None:
            if stream.remote_closed:
                raise Http2Error(h2.STREAM_CLOSED, "the peer sent headers after the end of a stream")
            if (end and stream.announced) or not self.may_follow(head, end):
                self._refuse_stream(stream.number, stream)
                return
            if end:
                self.remote_end(stream)
            stream.headers_received(head, end)
        elif self._is_idle(number):
            self._note_opened(number)
            self.stream_opened(number, head, end)
        else:
            self.late_headers_received()

    def _is_idle(self, number: int) -> bool:
        return number == 0 or number > self.last_opened

    def _note_opened(self, number: int) -> None:
        if self.opens_streams or not number & 1:
            raise Http2Error(h2.PROTOCOL_ERROR, "only a caller opens streams, with odd numbers")
        self.last_opened = number

    def _count_data(self, number: int, length: int) -> None:
        if not self.has_settings:
            raise Http2Error(h2.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self._is_idle(number):
            raise Http2Error(h2.PROTOCOL_ERROR, "DATA for an idle stream")
        self._receive_window -= length
        if self._receive_window < 0:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "the peer exceeded the connection's window")
        if self._receive_window < h2.CONNECTION_WINDOW // 2:
            self.write(frame(h2.WINDOW_UPDATE, 0, 0, h2.UINT32.pack(h2.CONNECTION_WINDOW - self._receive_window)))
            self._receive_window = h2.CONNECTION_WINDOW

    def _take_data(self, number: int, data: bytes, end: bool, length: int | None = None) -> None:
        stream = self.streams.get(number)
        if not data and (stream is None or not end):
            self._count_frame_of(number)
        if stream is None:
            return
        if stream.remote_closed:
            raise Http2Error(h2.STREAM_CLOSED, "the peer sent data after the end of a stream")
        if length is None:
            length = len(data)
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "the peer exceeded a stream's window")
        if length > len(data):
            self.credit(stream, length - len(data))
        if stream.announced is not None:
            stream.announced -= len(data)
            if stream.announced < 0 or (end and stream.announced):
                self._refuse_stream(stream.number, stream)
                return
        if end:
            self.remote_end(stream)
        stream.data_received(data, end)

    def _refuse_stream(self, number: int, stream: Stream | None) -> None:
        """Reset a stream whose message is malformed (RFC 9113, 8.1.1). That counts as if the peer had reset it."""
        self.reset(number, h2.PROTOCOL_ERROR)
        if stream is not None:
            stream.reset_received(h2.PROTOCOL_ERROR, True)
        if not self.opens_streams:
            self._count_control_frame()

    def _take_window(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(h2.FRAME_SIZE_ERROR, "WINDOW_UPDATE must have 4 bytes")
        more = h2.UINT32.unpack(payload)[0] & h2.LARGEST_WINDOW
        if number == 0:
            self.send_window += more
            if not more or self.send_window > h2.LARGEST_WINDOW:
                why = "the window's increment is 0 or exceeds the maximum"
                raise Http2Error(h2.FLOW_CONTROL_ERROR if more else h2.PROTOCOL_ERROR, why)
            self._is_wider = True
            return
        if self._is_idle(number):
            raise Http2Error(h2.PROTOCOL_ERROR, "WINDOW_UPDATE for an idle stream")
        if (stream := self.streams.get(number)) is None:
            return
        stream.send_window += more
        if not more or stream.send_window > h2.LARGEST_WINDOW:
            self.reset(number, h2.FLOW_CONTROL_ERROR if more else h2.PROTOCOL_ERROR)
            stream.reset_received(h2.FLOW_CONTROL_ERROR, True)
        elif number in self._blocked:
            self._is_wider = True

    def _take_settings(self, payload: bytes) -> None:
        self.has_settings = True
        window = self.peer_window
        for name, value in h2.SETTING.iter_unpack(payload):
            if name == h2.INITIAL_WINDOW_SIZE:
                if value > h2.LARGEST_WINDOW:
                    raise Http2Error(h2.FLOW_CONTROL_ERROR, "a window is too large")
                window = value
            elif name == h2.MAX_FRAME_SIZE:
                if not h2.DEFAULT_FRAME <= value < 1 << 24:
                    raise Http2Error(h2.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE is out of range")
                self.peer_frame = value
            elif name == h2.MAX_CONCURRENT_STREAMS:
                self.most_streams = value
            elif name == h2.ENABLE_PUSH and value > 1:
                raise Http2Error(h2.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH must be 0 or 1")
            elif name == h2.HEADER_TABLE_SIZE:
                self.block_prefix = b"\x20"  # this end uses no table: set its size to 0, which every maximum allows
        if change := window - self.peer_window:
            self.peer_window = window
            for stream in self.streams.values():
                stream.send_window += change
                if stream.send_window > h2.LARGEST_WINDOW:
                    raise Http2Error(h2.FLOW_CONTROL_ERROR, "a window is too large")
        self.write(frame(h2.SETTINGS, h2.ACK, 0))
        self._is_wider = True

    def _count_frame_of(self, number: int) -> None:
        """Count a frame without data, of a stream or (number 0) of the connection. Streams that this end has reset may
        get some, six resets from gRPC's C++ core. Only the server's end counts them."""
        if 0 < number <= self.last_opened and number not in self.streams:
            if self.opens_streams:
                return
            if self.late_frames_due:
                self.late_frames_due -= 1
                return
        self._count_control_frame()

    def _count_control_frame(self) -> None:
        self.control_frames += 1
        if self.control_frames > self.tunables.control_frames:
            raise Http2Error(h2.ENHANCE_YOUR_CALM, "too many frames that move no data")


def _keep_alive(sock: socket.socket, seconds: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", max(1, seconds // 4)), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
