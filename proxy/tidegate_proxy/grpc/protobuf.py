"""As much of protobuf's wire format as a proxy needs: to find fields without parsing, and to write small messages.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
_LONGEST_TAG = 5
_LONGEST_VARINT = 10
_LONGEST_VALUE = (1 << 31) - 1


class MalformedError(Exception):
    """This is no message. It says nothing of the bytes themselves."""


def field_at(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return number and wire type of the field that begins at `at`, and where its value begins and ends.

    The value may end beyond the data; None means that not even its length is there. Groups are refused.
    """
    size = len(data)
    if at >= size:
        return None
    tag = data[at]
    at += 1
    if tag >= 0x80:
        found = _varint(data, at - 1, _LONGEST_TAG)
        if found is None:
            return None
        tag, at = found
        if tag >> 32:
            raise MalformedError("a field's number is too large")
    number, wire = tag >> 3, tag & 7
    if number == 0:
        raise MalformedError("a field has the number 0")
    if wire == BYTES:
        if at >= size:
            return None
        length = data[at]
        at += 1
        if length >= 0x80:
            found = _varint(data, at - 1, _LONGEST_VARINT)
            if found is None:
                return None
            length, at = found
            if length > _LONGEST_VALUE:
                raise MalformedError("a field is too long")
        return number, wire, at, at + length
    if wire == VARINT:
        found = _varint(data, at, _LONGEST_VARINT)
        return None if found is None else (number, wire, at, found[1])
    if wire == EIGHT_BYTES:
        return number, wire, at, at + 8
    if wire == FOUR_BYTES:
        return number, wire, at, at + 4
    raise MalformedError("a field is of no known type")


def fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Return every field of a whole message, each as `field_at` does."""
    at = 0
    while at < len(data):
        found = field_at(data, at)
        if found is None or found[3] > len(data):
            raise MalformedError("it ends within a field")
        yield found
        at = found[3]


def last(data: bytes, number: int) -> bytes | None:
    """Return the value of a field of text or bytes; where it occurs more than once, the last counts."""
    value = None
    for found, wire, start, end in fields(data):
        if found == number and wire == BYTES:
            value = data[start:end]
    return value


def number_at(data: bytes, at: int) -> int:
    """Return the number (int64 or uint64) that begins there."""
    found = _varint(data, at, _LONGEST_VARINT)
    return 0 if found is None else found[0] & (1 << 64) - 1


def _written(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def text(number: int, value: bytes) -> bytes:
    """Write a field of text, bytes, or a message."""
    return _written(number << 3 | BYTES) + _written(len(value)) + value


def integer(number: int, value: int) -> bytes:
    """Write a field with a number that is not negative, or a truth value."""
    return _written(number << 3 | VARINT) + _written(value)


def framed(message: bytes) -> bytes:
    """Return a message as gRPC sends it: not compressed, with its length before it."""
    return b"\0" + len(message).to_bytes(4) + message


def _varint(data: bytes, at: int, longest: int) -> tuple[int, int] | None:
    value = shift = 0
    for here in range(at, at + longest):
        if here >= len(data):
            return None
        byte = data[here]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, here + 1
        shift += 7
    raise MalformedError("a number is too long")
