"""What the files of a framework tell of a model: the parts of its entry that are not the user's choice."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ....errors import UsageError
from ....names import nearest_of

DATA_TYPES = tuple(name.removeprefix("TYPE_") for name in DataType.DESCRIPTOR.values_by_name if name != "TYPE_INVALID")
"""Triton's, as `config.pbtxt` has them after `TYPE_`."""
ANY = -1  # A dimension that may have any size.


class UnreadableError(UsageError):
    """A file is not what it seems to be."""


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
    """A ModelConfig with the backend, and what else the framework decides; without tensors, unless they are fixed."""
    files: tuple[tuple[str, Path], ...] = ()  # Path below the version's folder, and the file it is copied from.
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    whole_shapes: bool = True
    """Whether the dimensions are those of the model, its batch's among them; else they leave the batch out."""
    arguments: tuple[str, ...] | None = None
    """What TorchScript's forward takes besides itself, where it can be read, and all of it is tensors."""
    missing: str = ""  # What the file does not tell of the tensors, and the user must say: a sentence for the error.
    notes: tuple[str, ...] = ()  # What the user should know of such a model in Triton.


def config_of(backend: str, platform: str = "", parameters: Iterable[tuple[str, str]] = ()) -> Any:
    """Return a ModelConfig with these."""
    config = ModelConfig(backend=backend, platform=platform)
    for key, value in parameters:
        config.parameters[key].string_value = value
    return config


def data_type(text: str) -> str:
    """Return Triton's name of a data type, however it is written: `fp32`, `TYPE_FP32`. Raises UsageError."""
    name = text.strip().upper().removeprefix("TYPE_")
    plain = {"BYTES": "STRING", "FLOAT16": "FP16", "FLOAT32": "FP32", "FLOAT64": "FP64", "BFLOAT16": "BF16"}
    name = plain.get(name, name)
    if name not in DATA_TYPES:
        raise UsageError(f"there is no data type {text!r}", do=nearest_of(name, DATA_TYPES, "data types"))
    return name


def bounded(file: Path, limit: int, what: str, do: str = "") -> bytes:
    """Return a file's bytes; raises UsageError when it has more than are ever read of such a one."""
    with file.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise UsageError(f"{what} of more than {limit >> 20} MiB is not read", where=file, do=do)
    return content


def unreadable(file: Path, what: str, why: object) -> UnreadableError:
    """Return the error that says that a file is not what it seems to be."""
    return UnreadableError(f"this is no {what} that can be read", where=file, why=str(why) or type(why).__name__)
