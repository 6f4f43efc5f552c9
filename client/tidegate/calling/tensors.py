"""Tensors in the HTTP body of KServe v2: JSON followed by their bytes.

Protocol: Triton's binary tensor data extension (docs/protocol/extension_binary_data.md of triton-inference-server).
`tritonclient.utils` has the data types, and packs texts.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy
from numpy.typing import NDArray
from tritonclient.utils import (
    InferenceServerException,
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from ..errors import UnreachableError, UsageError
from .replies import Reply

Array = NDArray[Any]
HEADER_LENGTH: Final = "Inference-Header-Content-Length"
VERSION: Final = "tidegate-model-version"

_MALFORMED: Final = (
    ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError, struct.error,
)  # fmt: skip
"""Exceptions while parsing a malformed response."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's outputs, and the version that answered."""

    outputs: dict[str, Array]  # by name. Texts (BYTES) are `bytes` in arrays of objects.
    model: str
    version: str


def type_of(array: Array, name: str) -> str:
    """Return the protocol's data type of an array. Raises UsageError."""
    if array.dtype.kind in "US":
        return "BYTES"
    found = np_to_triton_dtype(array.dtype.newbyteorder("="))
    if found is None:
        raise UsageError(f"input {name} has the type {array.dtype}, which no model accepts")
    return str(found)


def dtype_of(data_type: str) -> numpy.dtype[Any]:
    """Return numpy's type for one of the protocol's. Raises UsageError."""
    found = triton_to_np_dtype(data_type)
    if found is None or (data_type == "BF16" and numpy.dtype(found).itemsize != 2):
        raise UsageError(f"the data type {data_type} is unknown", do="install a newer tritonclient")
    dtype: numpy.dtype[Any] = numpy.dtype(found)
    return dtype


def pack(
    inputs: Mapping[str, Array], parameters: Mapping[str, Any] | None = None
) -> tuple[list[bytes | memoryview], int]:
    """Return the body of an inference request in pieces, JSON first, and the length of the JSON. Raises UsageError.
    Arrays are not copied."""
    described = []
    pieces: list[bytes | memoryview] = []
    for name, array in inputs.items():
        piece = _bytes_of(array, name)
        size = {"binary_data_size": len(piece)}
        described.append(_described(array, name) | {"parameters": size})
        if len(piece):
            pieces.append(piece)
    document = {"inputs": described, "parameters": dict(parameters or {}) | {"binary_data_output": True}}
    try:
        head = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError("a parameter of the request cannot be sent as JSON", why=str(error)) from None
    return [head, *pieces], len(head)


def pack_json(inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return the body of an inference request as plain JSON. Texts must be UTF-8. Raises UsageError."""
    return {"inputs": [_described(array, name) | {"data": values(array, name)} for name, array in inputs.items()]}


def values(array: Array, name: str) -> list[Any]:
    """Return the flat values of an array for JSON. Raises UsageError for values that JSON does not have."""
    flat = array.reshape(-1)
    if array.dtype.kind in "OSU":
        try:
            return [each.decode() if isinstance(each, bytes) else str(each) for each in flat.tolist()]
        except UnicodeDecodeError:
            why = "it contains bytes that are not valid UTF-8"
            raise UsageError(f"input {name} cannot be sent as JSON", why=why) from None
    if array.dtype.kind == "V":
        flat = flat.astype(numpy.float32)
    if flat.dtype.kind == "f" and not numpy.isfinite(flat).all():
        raise UsageError(f"input {name} cannot be sent as JSON", why="it contains a NaN or an infinity")
    return list(flat.tolist())


def unpack(reply: Reply, where: str) -> Answer:
    """Parse the response to an inference request. Raises UnreachableError if it is malformed."""
    length = reply.headers.get(HEADER_LENGTH.lower())
    try:
        end = len(reply.body) if length is None else int(length)
        document = json.loads(reply.body[:end])
        outputs: dict[str, Array] = {}
        for output in document["outputs"]:
            size = output["parameters"]["binary_data_size"]
            outputs[output["name"]] = _from_bytes(output, reply.body, end, size)
            end += size
        version = str(document.get("model_version") or reply.headers.get(VERSION, ""))
        return Answer(outputs, str(document.get("model_name", "")), version)
    except (*_MALFORMED, UsageError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UnreachableError("not a response to an inference request", where=where, why=why) from None


def _described(array: Array, name: str) -> dict[str, Any]:
    return {"name": name, "datatype": type_of(array, name), "shape": list(array.shape)}


def _bytes_of(array: Array, name: str) -> bytes | memoryview:
    if type_of(array, name) == "BYTES":
        if not array.size:
            return b""
        try:
            packed: bytes = serialize_byte_tensor(array.astype(object)).item()
        except InferenceServerException as error:  # no such case is known
            raise UsageError(f"input {name} cannot be sent", why=str(error)) from None
        return packed
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data


def _from_bytes(output: Mapping[str, Any], body: bytes | bytearray, start: int, size: int) -> Array:
    shape = _shape(output)
    if size < 0 or start + size > len(body):
        raise ValueError(f"output {output['name']} is shorter than its declared size")
    if output["datatype"] == "BYTES":
        texts: Array = deserialize_bytes_tensor(bytes(memoryview(body)[start : start + size]))
        return texts.reshape(shape)
    dtype = dtype_of(output["datatype"])
    found = numpy.frombuffer(body, dtype, size // dtype.itemsize, start).reshape(shape)
    return found if start % dtype.itemsize == 0 else found.copy()


def _shape(output: Mapping[str, Any]) -> list[int]:
    shape = output["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"output {output['name']} has no shape")
    return shape
