"""What all gRPC connections of a proxy share, and the callers' end of one."""

import asyncio
import logging
from collections import deque
from pathlib import Path
from time import monotonic

from ..concurrency import ConcurrencyLimiter
from ..paths import is_name
from ..problems import Kind, Problem
from ..servers import Servers
from ..shared_state import SharedState
from .call import Call
from .frames import (
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    MOST_UNWRITTEN,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    BrokenError,
)
from .heads import MOST_HEAD_BYTES, Fields, RequestHead, literal
from .line import keep_alive
from .link import Link
from .methods import HEALTH, OF_MODELS, OWN, SERVICE
from .own import NOT_SERVING, SERVING, Answer
from .problems import OK_HEAD, plain_trailers
from .questions import Questions
from .stream import Stream
from .upstreams import Upstreams

STREAM_WINDOW = 128 * 1024
"""Bytes of a call that a caller may send before it is decided upon."""
MOST_STREAMS = 256
"""Calls at once on one connection."""
IDLE_SECONDS = 600.0
"""Seconds that a connection may stand without a call."""
WRITE_SECONDS = 1.0
PREFACE_SECONDS = 20.0
MOST_PIECES = 2048
"""Frames that are gathered to be written at once."""
READ_ON_SECONDS = 0.002
STUCK_SECONDS = 60.0
"""Seconds after which a caller who takes nothing of what waits for it is given up."""
MOST_SILENT_SECONDS = 60
_UNIMPLEMENTED = 12
_PLAIN_HTTP = literal(b"content-length", b"0")
_STATUS_415 = literal(b":status", b"415") + _PLAIN_HTTP
_STATUS_405 = literal(b":status", b"405") + literal(b"allow", b"POST") + _PLAIN_HTTP


class Caller(Link[RequestHead]):
    """A caller's connection."""

    stream_window = STREAM_WINDOW

    def __init__(self, board: "Switchboard") -> None:
        super().__init__({MAX_CONCURRENT_STREAMS: MOST_STREAMS, MAX_HEADER_LIST_SIZE: MOST_HEAD_BYTES}, b"")
        self.board = board
        self._greeting = b""
        self._greeted = False
        self._stuck_bytes = 0
        self._stuck_since = 0.0

    def understand(self, fields: Fields) -> RequestHead:
        """Return what a request's headers say."""
        return RequestHead(fields)

    def connection_made(self, transport: object) -> None:
        """Say hello."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.board.callers.add(self)
        if (sock := self.transport.get_extra_info("socket")) is not None:
            keep_alive(sock, MOST_SILENT_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what the caller waited for."""
        self.board.callers.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, after the words that every connection begins with."""
        if not self._greeted:
            self._greeting += data
            if not PREFACE.startswith(self._greeting[: len(PREFACE)]):
                self.end(PROTOCOL_ERROR, "this is not HTTP/2")
                return
            if len(self._greeting) < len(PREFACE):
                return
            self._greeted = True
            data, self._greeting = self._greeting[len(PREFACE) :], b""
        super().data_received(data)
        if len(self._out) > MOST_PIECES:
            self._flush()
            if self.transport.get_write_buffer_size() > MOST_UNWRITTEN and not self._paused:
                # The loop would go on reading for a while before it finds out that nobody takes the answers.
                self.transport.pause_reading()
                self.loop.call_later(READ_ON_SECONDS, self._read_on)

    def _read_on(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def opened(self, number: int, head: RequestHead, end: bool) -> None:
        """Begin a call, whatever it turns out to be."""
        if len(self.streams) >= MOST_STREAMS or self.board.closed:
            self.reset(number, REFUSED_STREAM)
            return
        self.board.begin(self, number, head, end)

    def half_closed(self, stream: Stream) -> None:
        """Want no more of a request that is answered (RFC 9113, 8.1)."""
        self.reset(stream.number, NO_ERROR)

    def came_late(self) -> None:
        """Refuse it: a call's headers come once, and nothing follows its messages."""
        raise BrokenError(STREAM_CLOSED, "headers came after a stream's end")

    def left(self, last: int) -> None:
        """Do nothing: who leaves opens no more calls."""

    def pause_writing(self) -> None:
        """Read no more, either: what is asked here is answered, and the caller takes no answers."""
        super().pause_writing()
        self._stuck_since = monotonic()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
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
        elif not self._greeted and now - self.last_used > PREFACE_SECONDS:
            self.transport.abort()
        elif not self.streams and now - self.last_used > IDLE_SECONDS:
            self.end()


class Switchboard:
    """Takes calls from callers, and knows the connections to replicas."""

    def __init__(self, shared: SharedState, servers: Servers, upstream_ca: Path) -> None:
        self.shared = shared
        self.upstreams = Upstreams(shared.settings.connect_timeout_seconds, upstream_ca)
        self.questions = Questions(self.upstreams, servers)
        self.streams = ConcurrencyLimiter(shared.settings.concurrency)
        """Streams have places of their own: idle ones keep no other call waiting."""
        self.callers: set[Caller] = set()
        self.watchers: set[Answer] = set()
        self.opened = 0
        """Calls so far."""
        self.closed = False
        self._to_unpack: deque[Call] = deque()
        self.logger = logging.getLogger(__name__)

    def caller(self) -> Caller:
        """Return the proxy's end of a new connection."""
        return Caller(self)

    def begin(self, link: Caller, number: int, head: RequestHead, end: bool) -> None:
        """Begin a call."""
        self.opened += 1
        stream: Call | Answer | Stream
        if head.method != b"POST" or not head.content_type.startswith(b"application/grpc"):
            self._refuse(link, number, end, _STATUS_405 if head.method != b"POST" else _STATUS_415)
        elif (method := OF_MODELS.get(head.path)) is not None:
            stream = Call(self, head, method, link.heard_at)
            self._add(link, stream, number, end)
            stream.begin(end)
        elif (own := OWN.get(head.path)) is not None:
            stream = Answer(self, head, own, link.heard_at)
            self._add(link, stream, number, end)
            stream.begin(end)
        else:
            said = plain_trailers(_UNIMPLEMENTED, "There is no such method here.")
            self._refuse(link, number, end, OK_HEAD + said)

    def _refuse(self, link: Caller, number: int, end: bool, block: bytes) -> None:
        stream = Stream()
        self._add(link, stream, number, end)
        link.send_head(stream, block, True)

    @staticmethod
    def _add(link: Caller, stream: Stream, number: int, end: bool) -> None:
        link.add(stream, number)
        stream.remote_closed = end

    def unpack_later(self, call: Call) -> None:
        """Let a call unpack some more of a message, in its turn: one call does in each turn of the loop."""
        self._to_unpack.append(call)
        if len(self._to_unpack) == 1:
            asyncio.get_running_loop().call_soon(self._unpack)

    def _unpack(self) -> None:
        call = self._to_unpack[0]
        call.unpack()  # it may stand in line again, behind the others
        self._to_unpack.popleft()
        if self._to_unpack:
            asyncio.get_running_loop().call_soon(self._unpack)

    # --- what calls ask for
    def server_of(self, head: RequestHead) -> str | None:
        """Return the server that a caller names; raises Problem."""
        if head.server is None:
            return None
        name = head.server.decode("latin-1")
        if not is_name(name):
            raise Problem(Kind.UNKNOWN, "No server can have such a name.")
        return name

    def health(self, service: str) -> int:
        """Return the status of a service, as grpc.health.v1 has it; raises Problem."""
        if service not in ("", SERVICE, HEALTH):
            raise Problem(Kind.UNKNOWN, "There is no such service here.")
        return NOT_SERVING if self.shared.draining else SERVING

    # --- life
    def look(self) -> None:
        """End the connections that stand about."""
        now = monotonic()
        for caller in list(self.callers):
            caller.look(now)

    def leave(self) -> None:
        """Tell callers to connect anew, and who watches that the proxy is not serving; calls still come and go."""
        for watcher in list(self.watchers):
            watcher.health_changed()
        for caller in list(self.callers):
            caller.farewell(LARGEST_WINDOW)

    def close(self) -> None:
        """Take no more calls."""
        self.closed = True
        for watcher in list(self.watchers):
            watcher.leave()
        for caller in list(self.callers):
            if caller.streams:
                caller.farewell(caller.last_opened)
            else:
                caller.end()

    async def stop(self) -> None:
        """End the calls that are left, and every connection, as soon as what was said is written."""
        for each in [each for each in self.shared.open_calls if isinstance(each, Call | Answer)]:
            each.leave()
        for caller in list(self.callers):
            caller.end()
        end = monotonic() + WRITE_SECONDS
        while self.callers and monotonic() < end:
            await asyncio.sleep(0.01)
        for caller in list(self.callers):
            caller.transport.abort()
