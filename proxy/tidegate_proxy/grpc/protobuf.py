"""The part of protobuf's wire format that the proxy needs: find fields without parsing, and write small messages.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
_LONGEST_TAG = 5
_LONGEST_VARINT = 10
_LONGEST_VALUE = (1 << 31) - 1


class MalformedError(Exception):
    """The data is not a valid message. The text never contains the data itself."""


def field_at(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return number and wire type of the field that begins at `at`, and where its value begins and ends. The value can
    end beyond the data. Return None if the data ends before the value's length. Groups are refused."""
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
    """Yield every field of a complete message, each as `field_at` returns it."""
    at = 0
    while at < len(data):
        found = field_at(data, at)
        if found is None or found[3] > len(data):
            raise MalformedError("it ends within a field")
        yield found
        at = found[3]


def last(data: bytes, number: int) -> bytes | None:
    """Return the last value of a string, bytes or message field, or None if the message lacks it."""
    value = None
    for found, wire, start, end in fields(data):
        if found == number and wire == BYTES:
            value = data[start:end]
    return value


def number_at(data: bytes, at: int) -> int:
    """Return the number (int64 or uint64) that begins at `at`."""
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
    """Return a string, bytes or message field, encoded."""
    return _written(number << 3 | BYTES) + _written(len(value)) + value


def integer(number: int, value: int) -> bytes:
    """Return a field with a non-negative number or a boolean, encoded."""
    return _written(number << 3 | VARINT) + _written(value)


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's prefix: the flag "not compressed" and the length."""
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
