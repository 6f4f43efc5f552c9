"""The header of a safetensors file, by which it is known to be whole without a byte of its weights being read.

The format: eight bytes with the length of the header, which is JSON, and the tensors' bytes without gaps
(https://huggingface.co/docs/safetensors, "Format").
"""

import json
import math
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..failures import plain

MOST_HEADER: Final = 100_000_000  # Bytes; the library takes no longer ones.
_BITS: Final = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


class UnknownTypeError(ValueError):
    """A tensor has a type that the format had not when this was written, or never had."""


class StoredTensor(NamedTuple):
    """What a header says of a tensor."""

    dtype: str  # As the format has it: BF16, F32 …
    shape: tuple[int, ...]


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Return a file's tensors by their names; raises ValueError for a file that is not whole, OSError."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > MOST_HEADER or 8 + length > size:
            raise ValueError("its header is cut, or it is no safetensors file")
        raw = opened.read(length)
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is no JSON: {plain(error)}") from None
    try:
        tensors = [_tensor(name, about) for name, about in said.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("its header does not say type, shape and place of each tensor") from None
    end = 0
    for first, last, name, tensor in sorted(tensors):
        if tensor.dtype not in _BITS:
            raise UnknownTypeError(f"its tensor {name} is of the type {tensor.dtype}, which is not known here")
        if first != end or (last - first) * 8 != math.prod(tensor.shape) * _BITS[tensor.dtype]:
            raise ValueError(f"its tensor {name} does not have the bytes that its header says")
        end = last
    if 8 + length + end != size:
        raise ValueError(f"it has {size} bytes, and its header says {8 + length + end}")
    return {name: tensor for _, _, name, tensor in tensors}


def _tensor(name: str, about: Any) -> tuple[int, int, str, StoredTensor]:
    first, last = about["data_offsets"]
    shape = tuple(about["shape"])
    if not all(type(each) is int and each >= 0 for each in (first, last, *shape)):
        raise ValueError(name)
    return first, last, name, StoredTensor(str(about["dtype"]), shape)
