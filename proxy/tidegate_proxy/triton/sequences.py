"""Which sequence a request belongs to: all of one must reach the same replica, which alone keeps its state.

Protocol: Triton's sequence extension of KServe v2: `parameters.sequence_id`, a number or a text; 0 and "" are none.
"""

import zlib

import msgspec

from ..problems import Kind, Problem

_JSON_LENGTH = b"inference-header-content-length"
_ENCODING = b"content-encoding"


class _Parameters(msgspec.Struct):
    sequence_id: int | str = 0


class _Infer(msgspec.Struct):
    parameters: _Parameters | None = None


_decoder = msgspec.json.Decoder(_Infer)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What is raised for a text that is no JSON, or is nested too deeply."""


def sequence_of(passed: bytes, body: bytes | bytearray | memoryview, most: int) -> bytes | None:
    """Return the sequence's id, None for a request of none; raises Problem. `most` bounds a body that is unpacked."""
    said = {}
    for line in passed.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        said[name.lower()] = value
    if encoding := said.get(_ENCODING):
        body = _unpacked(encoding.lower(), body, most)
    length = said.get(_JSON_LENGTH)
    if length is not None and length.isdigit():
        body = body[: int(length)]
    try:
        parameters = _decoder.decode(body).parameters
    except _UNREADABLE:
        return None  # the replica tells what is wrong with it
    if parameters is None or not parameters.sequence_id:
        return None
    return str(parameters.sequence_id).encode("utf-8", "surrogatepass")


def _unpacked(encoding: bytes, body: bytes | bytearray | memoryview, most: int) -> bytes:
    if encoding not in (b"gzip", b"deflate"):
        raise Problem(Kind.MALFORMED, "A body may be compressed with gzip or deflate.")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise Problem(Kind.MALFORMED, "The body is not compressed as its header says.") from None
    if len(found) > most:
        raise Problem(Kind.TOO_LONG, f"A request's body may have {most} bytes here, unpacked.")
    return found
