"""Reads described fields of protobuf's wire format without the package onnx, and skips weights: files may be large."""

from collections.abc import Iterator, Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from .reading import unreadable

INT: Final = FieldDescriptorProto.TYPE_INT64
TEXT: Final = FieldDescriptorProto.TYPE_STRING
MANY: Final = True
Field = tuple[Any, ...]
"""Name, number, and type (one of the above, or the name of a message), then MANY if it is repeated."""
MOST_BYTES = 64 << 20  # Limit of the kept part of a file: names, types and shapes are a few kilobytes.
_MESSAGE = 2  # the wire type of messages, texts and packed lists


def described(package: str, messages: Mapping[str, Sequence[Field]]) -> dict[str, Any]:
    """Return the classes of these messages by name, as protobuf would generate them from a `.proto` file (proto3)."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind, *many in fields:
            added = message.field.add(name=field, number=number)
            added.label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
            if isinstance(kind, str):
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                added.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def read_message(message: Any, file: Path) -> Any:
    """Parse only the described fields of a file. Raises UnreadableError."""
    try:
        with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
            return message.FromString(bytes(_described_part(content, 0, len(content), message.DESCRIPTOR)))
    except (DecodeError, ValueError, IndexError, RecursionError) as error:  # an empty file raises ValueError
        raise unreadable(file, "ONNX model", error) from None


def _described_part(content: mmap, at: int, end: int, message: Any) -> bytearray:
    kept = bytearray()
    for tag, start, value, stop in _fields(content, at, end):
        if (field := message.fields_by_number.get(tag >> 3)) is None:
            continue
        if field.message_type is None or tag & 7 != _MESSAGE:
            if stop - start > MOST_BYTES:
                raise ValueError("a name or a shape in it is too large")
            kept += content[start:stop]
        else:
            inner = _described_part(content, value, stop, field.message_type)
            kept += varint(tag) + varint(len(inner)) + inner
        if len(kept) > MOST_BYTES:
            raise ValueError("it has too many tensors")
    return kept


def _fields(content: mmap, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field's tag, its start, the start of its value, and its end."""
    while at < end:
        start = at
        tag, at = _read_varint(content, at)
        value = at
        match tag & 7:
            case 0:
                _, at = _read_varint(content, at)
            case 1:
                at += 8
            case 2:
                length, value = _read_varint(content, at)
                at = value + length
            case 5:
                at += 4
            case _:
                raise ValueError(f"byte {start} does not start a field")
        if at > end:
            raise ValueError("it ends early")
        yield tag, start, value, at


def _read_varint(content: mmap, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError(f"byte {at} does not belong to a number")


def varint(value: int) -> bytes:
    """Encode a number in the wire format."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
