"""Protobuf messages described by the few of their fields that are read; what is not described is skipped."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

INT: Final = FieldDescriptorProto.TYPE_INT64
TEXT: Final = FieldDescriptorProto.TYPE_STRING
BOOL: Final = FieldDescriptorProto.TYPE_BOOL
MANY: Final = True
Field = tuple[Any, ...]
"""Name, number, and type: one of the above or the name of a message; then MANY, where it is repeated."""


def described(package: str, messages: Mapping[str, Sequence[Field]]) -> dict[str, Any]:
    """Return the classes of these messages by their names, as protobuf would make them of a `.proto` file (proto3)."""
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
