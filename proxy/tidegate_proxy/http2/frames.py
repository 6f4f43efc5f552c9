"""HTTP/2's frames, error codes and settings, and this end's limits."""

import struct
from typing import TypeVar

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION) = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

(NO_ERROR, PROTOCOL_ERROR, _, FLOW_CONTROL_ERROR, _, STREAM_CLOSED, FRAME_SIZE_ERROR) = range(7)
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

Fields = list[tuple[bytes, bytes]]
Understood = TypeVar("Understood")


class MalformedHeadersError(Exception):
    """The headers are not valid for a request or a response."""


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
