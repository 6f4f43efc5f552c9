"""What an entry is, by its files: tensors, versions, settings, an ensemble's steps."""

from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ...errors import UsageError
from ...findings import errors
from .ensemble import graph
from .entry import read_entry
from .frameworks.reading import ANY
from .text import CONFIG, config_text

_TOLD_APART = ("name", "backend", "platform", "input", "output", "ensemble_scheduling")


class ShownTensor(BaseModel):
    """One input or output."""

    name: str
    data_type: str
    shape: tuple[int, ...]  # As requests have it, the batch's dimension among it; -1 is any size.
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.data_type}[{','.join('?' if size == ANY else str(size) for size in self.shape)}]"


class ShownStep(BaseModel):
    """One step of an ensemble: its model's tensors, and those of the ensemble that they are."""

    model: str
    version: int
    inputs: dict[str, str]
    outputs: dict[str, str]


class Shown(BaseModel):
    """What is shown of an entry."""

    name: str
    backend: str
    max_batch_size: int
    versions: tuple[int, ...]
    files: int
    size: int
    inputs: tuple[ShownTensor, ...]
    outputs: tuple[ShownTensor, ...]
    steps: tuple[ShownStep, ...] = ()
    settings: str  # All other fields of the configuration: how Triton runs it, in the words of config.pbtxt.
    config: dict[str, Any]


def show_entry(folder: Path) -> Shown:
    """Describe an entry; raises UsageError when there is none, or its configuration cannot be parsed."""
    entry = read_entry(folder)
    config = entry.config
    if config is None or errors(entry.text.problems if entry.text else ()):
        what = f"its {CONFIG} cannot be read" if entry.text else f"it has no {CONFIG}"
        found = "\n".join(map(str, errors(entry.text.problems if entry.text else entry.problems)))
        raise UsageError(what, where=folder, why=found, do=f"`tidegate model check {folder}` explains it")
    return Shown(
        name=config.name or entry.name,
        backend=config.backend or config.platform or "(Triton guesses it from the files)",
        max_batch_size=config.max_batch_size,
        versions=entry.versions,
        files=len(entry.files),
        size=sum(file.size for file in entry.files),
        inputs=tuple(_tensor(each, config.max_batch_size) for each in config.input),
        outputs=tuple(_tensor(each, config.max_batch_size) for each in config.output),
        steps=tuple(
            ShownStep(model=step.model, version=step.version, inputs=dict(step.inputs), outputs=dict(step.outputs))
            for step in graph(config).steps
        ),
        settings=_settings(config),
        config=MessageToDict(config, preserving_proto_field_name=True),
    )


def _tensor(tensor: Any, batch: int) -> ShownTensor:
    labels = getattr(tensor, "label_filename", "")
    notes = {
        "optional": getattr(tensor, "optional", False),
        "ragged": getattr(tensor, "allow_ragged_batch", False),
        "shape tensor": tensor.is_shape_tensor,
        f"the model itself has {list(tensor.reshape.shape)}": tensor.HasField("reshape"),
        f"labels in {labels}": labels,
    }
    return ShownTensor(
        name=tensor.name,
        data_type=DataType.Name(tensor.data_type).removeprefix("TYPE_"),
        shape=((ANY,) if batch else ()) + tuple(tensor.dims),
        notes=tuple(note for note, holds in notes.items() if holds),
    )


def _settings(config: Any) -> str:
    rest = ModelConfig()
    rest.CopyFrom(config)
    for field in _TOLD_APART:
        rest.ClearField(field)
    return config_text(rest).rstrip()
