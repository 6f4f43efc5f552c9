"""HTTP/2 frames (RFC 9113), as they are written and named."""

import struct

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
OWN_FRAME = 1024 * 1024
"""Bytes of data that a frame to here may carry; it is taken as it comes, never gathered."""
CONNECTION_WINDOW = 64 * 1024 * 1024
"""Bytes of all streams together that may come at once: the streams' own windows are what holds."""
MOST_GATHERED = 64 * 1024
"""Bytes of any other frame."""
MOST_UNWRITTEN = 1024 * 1024
"""Bytes that wait for the peer to read, before streams are held."""
MOST_CHATTER = 10_000
"""Frames that move nothing (pings, settings, resets, empty ones) that a peer may send within `CHATTER_SECONDS`."""
CHATTER_SECONDS = 5.0

HEAD = struct.Struct(">HBBBL")
SETTING = struct.Struct(">HL")
LONG = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Write a frame."""
    length = len(payload)
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Write a frame of settings."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(name, value) for name, value in values.items()))


class BrokenError(Exception):
    """The peer does not speak HTTP/2, or too much of it: the connection ends."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def unpadded(payload: bytes) -> bytes:
    """Return what a padded frame holds; raises BrokenError."""
    if not payload or payload[0] >= len(payload):
        raise BrokenError(PROTOCOL_ERROR, "there is more padding than frame")
    return payload[1 : len(payload) - payload[0]]
