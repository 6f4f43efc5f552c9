"""HTTP/2's frames, error codes and settings, this end's limits, and header blocks compressed by HPACK (RFC 7541)."""

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
OWN_FRAME = 1024 * 1024  # Bytes of a received DATA frame. Its data is processed as it arrives, never collected.
CONNECTION_WINDOW = 64 * 1024 * 1024
"""Bytes that the peer can send on all streams together. In practice the windows of the streams limit it."""
MOST_GATHERED = 64 * 1024  # Bytes of any other frame that a caller sends.
MOST_UNWRITTEN = 1024 * 1024  # Bytes that wait for the peer to read before sending pauses.
LATE_FRAMES = 8  # Frames that a caller may send on a stream after the proxy has reset it.
UPDATES_OF_DATA = 10  # Window updates that a peer may send for each DATA frame that it gets.

FRAME_HEADER = struct.Struct(">HBBBL")
SETTING = struct.Struct(">HL")
UINT32 = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame, encoded."""
    length = len(payload)
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


class Http2Error(Exception):
    """The peer violates the protocol or floods the connection, which ends with this error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def unpadded(payload: bytes) -> bytes:
    """Return the payload of a padded frame without its padding. Raises Http2Error."""
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "the padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


MOST_HEAD_BYTES = 32 * 1024  # Bytes of a header block from a caller.
MOST_ANSWER_HEAD_BYTES = 4 * 1024 * 1024  # The same from a replica, whose error messages can be long.
_MOST_RESIZES = 2  # Table size updates at the start of a block (RFC 7541, 4.2).
_MOST_KEPT = 8192  # Bytes of cached blocks and their decoded fields.
_LONGEST_KEPT = 4096  # The same for one block.
_KEPT_BYTES = 512  # Overhead of a cached block.

Fields = list[tuple[bytes, bytes]]
Understood = TypeVar("Understood")


class MalformedHeadersError(Exception):
    """The headers are not valid for a request or a response."""


def too_long_headers(most: int) -> Http2Error:
    """Return the error for a peer whose headers exceed `most` bytes."""
    return Http2Error(ENHANCE_YOUR_CALM, f"the headers are too long: the limit is {most} bytes, decompressed")


def encode_header(name: bytes, value: bytes) -> bytes:
    """Return a header, encoded in the one form that needs no table (RFC 7541, 6.2.2)."""
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
    """Count the table size updates at the start of a block (RFC 7541, 6.3), at most one more than allowed."""
    place = found = 0
    while found <= _MOST_RESIZES and place < len(block) and block[place] & 0xE0 == 0x20:
        found += 1
        if block[place] & 0x1F == 0x1F:  # the number continues to the first byte below 128
            place += 1
            while place < len(block) and block[place] & 0x80:
                place += 1
        place += 1
    return found


class HeaderReader(Generic[Understood]):
    """Decompresses the header blocks of one peer, and converts their fields with `parse_fields`.

    `most_bytes` limits the fields of a block: names, values, and 32 bytes for each field (RFC 9113, 6.5.2).

    Peers often repeat a block byte by byte, so results are cached until the table that they refer to changes.
    """

    def __init__(self, parse_fields: Callable[[Fields], Understood], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._decoder = Decoder(max_header_list_size=most_bytes)
        self._parse_fields = parse_fields
        self._kept: dict[bytes, Understood] = {}
        self._kept_bytes = 0
        self.bytes_read = 0  # Of all blocks that were not cached.

    def read(self, block: bytes) -> Understood:
        """Return a block's converted fields. Raises MalformedHeadersError. Also raises HPACKError and Http2Error, after
        which the reader cannot be used."""
        found = self._kept.get(block)
        if found is not None:
            return found
        self.bytes_read += len(block)
        if _resizes(block) > _MOST_RESIZES:  # each takes as long as a header but does not count as one
            raise Http2Error(COMPRESSION_ERROR, "a header block has too many table size updates")
        before = self._state()
        try:
            decoded = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError:
            raise too_long_headers(self._most_bytes) from None
        after = self._state()
        is_same = before[0] is after[0] and before[1:] == after[1:]
        if not is_same:
            self._forget()
        fields = [(bytes(name), bytes(value)) for name, value in decoded]
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
        # A new entry comes first in the table, and is a new object.
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return entries[0] if entries else None, len(entries), table.maxsize
