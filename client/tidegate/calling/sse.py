"""Server-sent events, as `generate_stream` answers: each is one line `data: {…}` (WHATWG HTML, 9.2)."""

import json
from collections.abc import Iterator
from typing import Any, Final

from ..errors import UnreachableError

_MOST_BYTES: Final = 1 << 26
"""Of one event."""


def events(pieces: Iterator[bytes], where: str) -> Iterator[dict[str, Any]]:
    """Give what each event says, from a body that comes in pieces, cut anywhere.

    Raises UnreachableError for an event that is an error of the model's, for what is none, and for half an event.
    """
    data: list[bytes] = []
    size = 0
    for line in _lines(pieces, where):
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
                size += len(line) + 1
                if size > _MOST_BYTES:
                    raise _too_long(where)
        elif data:
            yield _said(b"\n".join(data), where)
            data, size = [], 0
    if data:
        raise UnreachableError("the stream was cut in the middle of an answer", where=where, do="try again")


def _lines(pieces: Iterator[bytes], where: str) -> Iterator[bytes]:
    rest = bytearray()
    for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            if len(rest) > _MOST_BYTES:
                raise _too_long(where)
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield bytes(line.removesuffix(b"\r"))
    if rest:
        yield bytes(rest)


def _too_long(where: str) -> UnreachableError:
    return UnreachableError(f"an answer of the stream has more than {_MOST_BYTES} bytes", where=where)


def _said(data: bytes, where: str) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise UnreachableError("an answer of the stream is no JSON object", where=where)
    if set(said) == {"error"}:
        why = "".join(each if each.isprintable() else " " for each in str(said["error"])[:2000])
        raise UnreachableError("the model reported an error in the middle of its stream", where=where, why=why)
    return said
