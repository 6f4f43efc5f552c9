"""HTTP/2's frames, error codes and settings, this end's limits; and header blocks, compressed by HPACK (RFC 7541)."""

import struct
from collections.abc import Callable
from itertools import chain
from typing import Generic, TypeVar

from hpack import Decoder
from hpack.exceptions import OversizedHeaderListError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION) = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, _, STREAM_CLOSED, FRAME_SIZE_ERROR) = range(7)
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 0x7, 0x8, 0x9, 0xB

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)
LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384
OWN_FRAME = 1024 * 1024  # Bytes of a DATA frame that is received; its data is taken as it comes, never gathered.
CONNECTION_WINDOW = 64 * 1024 * 1024
"""Bytes that may come at once on all streams together: the streams' own windows are what limits them."""
MOST_GATHERED = 64 * 1024  # Bytes of any other frame that a caller sends.
MOST_UNWRITTEN = 1024 * 1024  # Bytes that wait for the peer to read, before streams are held.
MOST_CONTROL_FRAMES = 10_000
"""Frames that move nothing (pings, settings, resets, empty ones, updates of windows that nothing was sent for) that a
peer may send within `CONTROL_SECONDS`."""
CONTROL_SECONDS = 5.0
LATE_FRAMES = 8  # Frames that a caller may send of a stream that the proxy has reset.
UPDATES_OF_DATA = 10  # Updates of windows that a peer may send for a DATA frame that it gets.

FRAME_HEADER = struct.Struct(">HBBBL")
SETTING = struct.Struct(">HL")
UINT32 = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as it is sent."""
    length = len(payload)
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


class Http2Error(Exception):
    """The peer breaks the protocol or floods it: the connection ends with this error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def unpadded(payload: bytes) -> bytes:
    """Return the payload of a padded frame without its padding; raises Http2Error."""
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "there is more padding than frame")
    return payload[1 : len(payload) - payload[0]]


MOST_HEAD_BYTES = 32 * 1024  # Bytes of a header block that a caller sends.
MOST_ANSWER_HEAD_BYTES = 4 * 1024 * 1024  # The same of a replica, which may explain at length why a call failed.
_MOST_RESIZES = 2  # Changes of the table's size that a block may begin with (RFC 7541, 4.2).
_MOST_KEPT = 8192  # Bytes of blocks that are kept, and of what they say.
_LONGEST_KEPT = 4096  # The same of one.
_KEPT_BYTES = 512  # What one that is kept takes beside that.

Fields = list[tuple[bytes, bytes]]
Understood = TypeVar("Understood")


class MalformedHeadersError(Exception):
    """These headers are no request's, or no answer's."""


def too_long_headers(most: int) -> Http2Error:
    """Return the error that ends a connection whose peer sends longer headers than `most` bytes."""
    return Http2Error(ENHANCE_YOUR_CALM, f"the headers are too long: they may have {most} bytes unpacked")


def encode_header(name: bytes, value: bytes) -> bytes:
    """Return a header as it is sent, in the one form that needs no table (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(value: bytes) -> bytes:
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    rest = length - 127
    written = bytearray((127,))
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written) + value


def _resizes(block: bytes) -> int:
    """Return how many changes of the table's size a block begins with, or more than it may (RFC 7541, 6.3)."""
    place = found = 0
    while found <= _MOST_RESIZES and place < len(block) and block[place] & 0xE0 == 0x20:
        found += 1
        if block[place] & 0x1F == 0x1F:  # its number goes on, to the first byte below 128
            place += 1
            while place < len(block) and block[place] & 0x80:
                place += 1
        place += 1
    return found


class HeaderReader(Generic[Understood]):
    """Decompresses the header blocks of one peer; `parse_fields` makes of their fields what is returned.

    The fields of a block may have `most_bytes`: names and values, each with 32 bytes more (RFC 9113, 6.5.2).

    A peer's blocks are often the same bytes again, so what a block was understood as is kept for as long as the table
    that it refers to stays as it is.
    """

    def __init__(self, parse_fields: Callable[[Fields], Understood], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._decoder = Decoder(max_header_list_size=most_bytes)
        self._parse_fields = parse_fields
        self._kept: dict[bytes, Understood] = {}
        self._kept_bytes = 0
        self.bytes_read = 0  # Of all blocks that were not kept.

    def read(self, block: bytes) -> Understood:
        """Return what a block says; raises MalformedHeadersError, or HPACKError or Http2Error, after which none is."""
        found = self._kept.get(block)
        if found is not None:
            return found
        self.bytes_read += len(block)
        if _resizes(block) > _MOST_RESIZES:  # each takes as long as a header, and none is seen
            raise Http2Error(COMPRESSION_ERROR, "a block of headers changes the size of their table again and again")
        before = self._state()
        try:
            said = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError:
            raise too_long_headers(self._most_bytes) from None
        after = self._state()
        is_same = before[0] is after[0] and before[1:] == after[1:]
        if not is_same:
            self._forget()
        fields = [(bytes(name), bytes(value)) for name, value in said]
        found = self._parse_fields(fields)
        if is_same and (size := len(block) + sum(map(len, chain(*fields)))) <= _LONGEST_KEPT:
            self._kept_bytes += size + _KEPT_BYTES
            if self._kept_bytes > _MOST_KEPT:
                self._forget()
                self._kept_bytes = size + _KEPT_BYTES
            self._kept[block] = found
        return found

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def _state(self) -> tuple[object, int, int]:
        # An entry that is added comes first in the table, as an object of its own.
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return entries[0] if entries else None, len(entries), table.maxsize
