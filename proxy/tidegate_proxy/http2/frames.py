"""HTTP/2's frames, error codes and settings, and this end's limits."""

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
"""Bytes of a DATA frame that is received; its data is taken as it comes, never gathered."""
CONNECTION_WINDOW = 64 * 1024 * 1024
"""Bytes that may come at once on all streams together: the streams' own windows are what limits them."""
MOST_GATHERED = 64 * 1024
"""Bytes of any other frame that is received."""
MOST_UNWRITTEN = 1024 * 1024
"""Bytes that wait for the peer to read, before streams are held."""
MOST_CONTROL_FRAMES = 10_000
"""Frames that move nothing (pings, settings, resets, empty ones) that a peer may send within `CONTROL_SECONDS`."""
CONTROL_SECONDS = 5.0

FRAME_HEADER = struct.Struct(">HBBBL")
SETTING = struct.Struct(">HL")
UINT32 = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as it is sent."""
    length = len(payload)
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a frame of settings."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(name, value) for name, value in values.items()))


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
