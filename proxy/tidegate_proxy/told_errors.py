"""How much of what a replica tells as an error is kept until it is whole, so that callers get it without paths."""

import zlib

UNREADABLE = b'{"error":"what went wrong is told in an encoding that the proxy does not read: accept gzip, or none"}'
MOST_ERROR = 16 * 1024  # Bytes of an error, as an answer, an event or a message of a stream; more are left out.


def unpacked(body: bytes) -> bytes:
    """Return the beginning of what gzip or deflate has compressed; nothing of what is neither."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, MOST_ERROR)  # 32: either of them
    except zlib.error:
        return b""
