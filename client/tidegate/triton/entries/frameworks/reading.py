"""The parts of an entry that a framework's files determine."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ....errors import UsageError
from ....names import nearest_of

DATA_TYPES = tuple(name.removeprefix("TYPE_") for name in DataType.DESCRIPTOR.values_by_name if name != "TYPE_INVALID")
"""Triton's types, as in `config.pbtxt` after `TYPE_`."""
ANY = -1  # a dimension of any size


class UnreadableError(UsageError):
    """A file is not valid in its format."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model, with Triton's name of its type (`FP32`)."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """The parts of an entry, as read from a framework's files."""

    config: Any
    """A ModelConfig with the backend and other settings of the framework. Without tensors, unless they are fixed."""
    files: tuple[tuple[str, Path], ...] = ()  # path below the version directory, and the file to copy
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    whole_shapes: bool = True
    """Whether the dimensions include the batch."""
    arguments: tuple[str, ...] | None = None
    """The arguments of TorchScript's forward, if they can be read and are all tensors."""
    missing: str = ""  # Why the user must describe the tensors: a sentence for the error.
    notes: tuple[str, ...] = ()  # Hints for the user about such a model in Triton.


def config_of(backend: str, platform: str = "", parameters: Iterable[tuple[str, str]] = ()) -> Any:
    """Return a ModelConfig with a backend, a platform and parameters."""
    config = ModelConfig(backend=backend, platform=platform)
    for key, value in parameters:
        config.parameters[key].string_value = value
    return config


def data_type(text: str) -> str:
    """Return Triton's name of a data type, in any spelling: `fp32`, `TYPE_FP32`. Raises UsageError."""
    name = text.strip().upper().removeprefix("TYPE_")
    plain = {"BYTES": "STRING", "FLOAT16": "FP16", "FLOAT32": "FP32", "FLOAT64": "FP64", "BFLOAT16": "BF16"}
    name = plain.get(name, name)
    if name not in DATA_TYPES:
        raise UsageError(f"there is no data type {text!r}", do=nearest_of(name, DATA_TYPES, "data types"))
    return name


def bounded(file: Path, limit: int, what: str, do: str = "") -> bytes:
    """Return a file's content. Raises UsageError if it exceeds the limit."""
    with file.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise UsageError(f"{what} of more than {limit >> 20} MiB is not supported", where=file, do=do)
    return content


def unreadable(file: Path, what: str, why: object) -> UnreadableError:
    """Return the error for a file that is not valid in its format."""
    return UnreadableError(f"not a readable {what}", where=file, why=str(why) or type(why).__name__)
