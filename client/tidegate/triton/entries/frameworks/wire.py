"""Protobuf's wire format, walked over: a file that may be large is reduced to the few fields of it that are read."""

from collections.abc import Iterator, Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from .reading import unreadable

MOST_BYTES = 64 << 20
"""Of what is kept: names, types and shapes are a few kilobytes."""
Keep = Mapping[int, Any]
"""By the numbers of fields: None keeps a field as it is, another Keep what that says of the message in it."""


def reduced(file: Path, keep: Keep, what: str) -> bytes:
    """Return a message with nothing but the fields that are kept; the others are passed over, not read.

    Raises UnreadableError for what is no such message.
    """
    try:
        with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
            return bytes(_kept(content, 0, len(content), keep))
    except (ValueError, IndexError) as error:  # an empty file cannot be mapped, which is a ValueError too
        raise unreadable(file, what, error) from None


def _kept(content: mmap, at: int, end: int, keep: Keep) -> bytearray:
    kept = bytearray()
    for number, start, value, stop in _fields(content, at, end):
        if number not in keep:
            continue
        inner = keep[number]
        if inner is None:
            if stop - start > MOST_BYTES:
                raise ValueError("a name or a shape in it is too large")
            kept += content[start:stop]
        else:
            message = _kept(content, value, stop, inner)
            kept += _number(number << 3 | 2) + _number(len(message)) + message
        if len(kept) > MOST_BYTES:
            raise ValueError("it has too many tensors")
    return kept


def _fields(content: mmap, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Give each field's number, and where it begins, where its value begins, and where it ends."""
    while at < end:
        start = at
        tag, at = _read_number(content, at)
        value = at
        match tag & 7:
            case 0:
                _, at = _read_number(content, at)
            case 1:
                at += 8
            case 2:
                length, value = _read_number(content, at)
                at = value + length
            case 5:
                at += 4
            case _:
                raise ValueError(f"byte {start} begins no field")
        if at > end:
            raise ValueError("it ends early")
        yield tag >> 3, start, value, at


def _read_number(content: mmap, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError(f"byte {at} belongs to no number")


def _number(value: int) -> bytes:
    said = bytearray()
    while value > 0x7F:
        said.append(value & 0x7F | 0x80)
        value >>= 7
    said.append(value)
    return bytes(said)
