"""Streams, and the sending half of their connection: headers, and data within the limits of flow control."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any, cast

from . import frames as h2
from .frames import frame

PIECE_BYTES = 256  # Overhead of a piece of unsent data.
MOST_PIECES = 64  # Pieces that are collected before writing, which shows whether the peer reads.
CLOSE_SECONDS = 5.0  # Time for the peer to read the remaining data when the connection ends.


class Stream:
    """One request and its response. Subclasses override these methods, and send through `connection`."""

    connection: "Sender"
    number = 0
    send_window = 0
    receive_window = 0
    unsent_bytes = 0
    local_closed = False  # Whether this end has sent everything.
    remote_closed = False  # Whether the peer has sent everything.
    announced: int | None = None  # Bytes that the peer has still to send according to `content-length`, if set.
    _credit = 0
    _end_block: bytes | None = None
    _end_data = False
    _unsent: deque[memoryview] | None = None

    def headers_received(self, headers: Any, end: bool) -> None:
        """Handle headers after those that opened the stream. `end`: the peer sends nothing more."""

    def data_received(self, data: bytes, end: bool) -> None:
        """Handle data. Call `connection.credit` when it is processed."""

    def reset_received(self, code: int | None, processed: bool) -> None:
        """Handle the peer's reset, or a lost connection (`code` None). Not `processed`: the peer has not begun it."""

    @property
    def unsent_held(self) -> int:
        """Memory of the unsent data. The first piece counts as a whole until all of it is sent."""
        if not self._unsent:
            return 0
        first = self._unsent[0]
        return self.unsent_bytes + len(cast(bytes, first.obj)) - len(first) + PIECE_BYTES * len(self._unsent)

    def drained(self) -> None:
        """Handle that all data given to `connection.send_data` has been sent."""


class Sender(asyncio.BaseProtocol):
    """Collects frames until all received data is processed, so that streams of one turn of the loop share a write."""

    stream_window = h2.DEFAULT_WINDOW  # Bytes that a stream may receive before credit is given.

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.streams: dict[int, Stream] = {}
        self.alive = False
        self.last_used = monotonic()
        self._cut: asyncio.TimerHandle | None = None
        self.is_ending = False  # Whether reading has stopped and the remaining data is being written.
        self.last_opened = 0  # The newest stream's number.
        self.peer_window = h2.DEFAULT_WINDOW
        self.peer_frame = h2.DEFAULT_FRAME
        self.send_window = h2.DEFAULT_WINDOW
        self.updates_due = 0  # Window updates that the peer may send for the data sent to it.
        self.late_frames_due = 0  # Frames that the peer may send on streams that this end has reset.
        self.block_prefix = b""  # Bytes to send at the start of the next header block.
        self._out: list[bytes | bytearray | memoryview] = []
        self._flushing = False
        self._paused = False
        self._blocked: dict[int, Stream] = {}

    def pause_writing(self) -> None:
        """Pause all streams, because the peer does not read."""
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def stream_ended(self) -> None:
        """Handle that a stream has ended in both directions. For subclasses."""

    def half_closed(self, stream: Stream) -> None:
        """Handle that this end has sent everything on a stream, but the peer has not. For subclasses."""

    def add(self, stream: Stream, number: int) -> None:
        stream.connection = self
        stream.number = number
        stream.send_window = self.peer_window
        stream.receive_window = self.stream_window
        self.streams[number] = stream

    def send_headers(self, stream: Stream, block: bytes, end: bool = False) -> None:
        """Send headers encoded by `encode_header`. Headers that end a stream are sent after all of its data."""
        if stream.local_closed:
            return
        if end and stream.number in self._blocked:
            stream._end_block = block
            return
        self._write_block(stream.number, block, end)
        if end:
            self._local_end(stream)

    def send_data(self, stream: Stream, data: bytes | bytearray, end: bool = False) -> None:
        """Send data as far as the windows allow. The rest is kept, and `drained` is called when it is sent."""
        if stream.local_closed:
            return
        size = len(data)
        held = self._paused or stream.number in self._blocked or len(self._out) > MOST_PIECES
        if not held and size <= stream.send_window and size <= self.send_window:
            stream.send_window -= size
            self.send_window -= size
            self._write_data(stream.number, data, end)
            if end:
                self._local_end(stream)
            return
        if stream._unsent is None:
            stream._unsent = deque()
        stream._unsent.append(memoryview(data))
        stream.unsent_bytes += size
        stream._end_data = end
        self._blocked[stream.number] = stream
        self.pump()

    def credit(self, stream: Stream, size: int) -> None:
        """Let the peer send `size` more bytes on a stream."""
        if stream.remote_closed or not size:
            return
        stream._credit += size
        if stream._credit * 2 >= self.stream_window:
            self.widen(stream, stream._credit)
            stream._credit = 0

    def widen(self, stream: Stream, size: int) -> None:
        """Enlarge a stream's receive window."""
        if not stream.remote_closed:
            self.write(frame(h2.WINDOW_UPDATE, 0, stream.number, h2.UINT32.pack(size)))
            stream.receive_window += size

    def reset(self, number: int, code: int) -> None:
        """End a stream immediately, in both directions."""
        self.forget(number)
        if self.alive:
            self.late_frames_due += h2.LATE_FRAMES
            self.write(frame(h2.RST_STREAM, 0, number, h2.UINT32.pack(code)))

    def forget(self, number: int) -> Stream | None:
        """Unregister a stream that has ended in both directions, and return it."""
        stream = self.streams.pop(number, None)
        if stream is not None:
            stream.local_closed = stream.remote_closed = True
            stream._unsent = None
            stream.unsent_bytes = 0
            self._blocked.pop(number, None)
            self.last_used = monotonic()
            self.stream_ended()
        return stream

    def _local_end(self, stream: Stream) -> None:
        stream.local_closed = True
        if stream.remote_closed:
            self.forget(stream.number)
        else:
            self.half_closed(stream)

    def remote_end(self, stream: Stream) -> None:
        """Note that the peer has sent everything on a stream."""
        stream.remote_closed = True
        if stream.local_closed:
            self.forget(stream.number)

    def pump(self) -> None:
        """Send what the windows allow, one frame of each stream in turn."""
        moved = True
        while moved and self._blocked and not self._paused:
            moved = False
            for stream in list(self._blocked.values()):
                if stream.number in self._blocked and self._send_some(stream):
                    moved = True
                if len(self._out) > MOST_PIECES:
                    self._flush()
                    if self._paused:
                        return

    def _send_some(self, stream: Stream) -> bool:
        queue = stream._unsent
        assert queue
        room = max(0, min(stream.send_window, self.send_window, self.peer_frame))
        if not room and stream.unsent_bytes:
            return False
        data = queue[0]
        if len(data) > room:
            queue[0] = data[room:]
            data = data[:room]
        else:
            queue.popleft()
        size = len(data)
        stream.send_window -= size
        self.send_window -= size
        stream.unsent_bytes -= size
        if queue:
            self._write_data(stream.number, data, False)
            return True
        del self._blocked[stream.number]
        self._write_data(stream.number, data, stream._end_data)
        if stream._end_block is not None:
            self._write_block(stream.number, stream._end_block, True)
            self._local_end(stream)
        elif stream._end_data:
            self._local_end(stream)
        stream.drained()
        return True

    def _write_data(self, number: int, data: bytes | bytearray | memoryview, end: bool) -> None:
        size, most = len(data), self.peer_frame
        if size <= most:
            self.updates_due += h2.UPDATES_OF_DATA
            self.write(h2.FRAME_HEADER.pack(size >> 8, size & 0xFF, h2.DATA, end, number))
            if size:
                self._out.append(data)
            return
        whole = memoryview(data)
        for at in range(0, size, most):
            self._write_data(number, whole[at : at + most], end and at + most >= size)

    def _write_block(self, number: int, block: bytes, end: bool) -> None:
        if self.block_prefix:
            block = self.block_prefix + block
            self.block_prefix = b""
        size, most = len(block), self.peer_frame
        if size <= most:
            self.write(h2.FRAME_HEADER.pack(size >> 8, size & 0xFF, h2.HEADERS, h2.END_HEADERS | end, number) + block)
            return
        parts = [block[at : at + most] for at in range(0, len(block), most)]
        self.write(frame(h2.HEADERS, int(end), number, parts[0]))
        for part in parts[1:-1]:
            self.write(frame(h2.CONTINUATION, 0, number, part))
        self.write(frame(h2.CONTINUATION, h2.END_HEADERS, number, parts[-1]))

    def write_out(self, data: bytes) -> None:
        self.transport.write(data)

    def write(self, data: bytes) -> None:
        """Write a frame, together with the others of this turn."""
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._out and self.alive:
            self.write_out(b"".join(self._out))
        self._out.clear()
        if self.is_ending:
            self.transport.close()

    def goaway(self, last: int, code: int = h2.NO_ERROR, why: str = "") -> None:
        """Announce to the peer that no streams after `last` are processed."""
        if self.alive:
            self.write(frame(h2.GOAWAY, 0, 0, h2.UINT32.pack(last) + h2.UINT32.pack(code) + why.encode()))

    def end(self, code: int = h2.NO_ERROR, why: str = "") -> None:
        """Close the connection after the remaining data is written."""
        if not self.is_ending:
            self.goaway(self.last_opened, code, why)
            self.is_ending = True
            self._cut = self.loop.call_later(CLOSE_SECONDS, lambda: self.transport.abort())
