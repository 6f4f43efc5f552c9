"""What an entry is, told and drawn from its files: tensors, versions, settings, an ensemble's steps."""

from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic import BaseModel
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ...errors import UsageError
from ...findings import errors
from .ensemble import Graph, Step, graph
from .entry import read_entry
from .frameworks.reading import ANY
from .text import CONFIG, config_text

_ARROW = "  │\n  ▼"
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


def draw(shown: Shown) -> RenderableType:
    """Draw an ensemble: its inputs, a row of boxes for the steps that can run at once, its outputs."""
    drawn = graph(ParseDict(shown.config, ModelConfig()))
    parts: list[RenderableType] = [_outside("input", shown.inputs)]
    for wave in drawn.order:
        parts += [Text(_ARROW), Columns([_box(drawn, drawn.steps[index]) for index in wave], padding=(0, 2))]
    parts += [Text(_ARROW), _outside("output", shown.outputs)]
    ready = {index for wave in drawn.order for index in wave}
    if stuck := [_box(drawn, step) for step in drawn.steps if step.index not in ready]:
        parts += [Text("never run, for they wait for tensors that nobody makes, or for themselves:"), Columns(stuck)]
    return Group(*parts)


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


def _outside(side: str, tensors: tuple[ShownTensor, ...]) -> Text:
    return Text("\n".join(f"{side}  {tensor.name}  {tensor}" for tensor in tensors))


def _box(drawn: Graph, step: Step) -> Panel:
    lines = []
    for of_model, of_ensemble in step.inputs:
        producer = drawn.producers.get(of_ensemble)
        lines.append(f"{of_model} ← {of_ensemble}{f' (of {producer.model})' if producer else ''}")
    lines += [f"{of_model} → {of_ensemble}" for of_model, of_ensemble in step.outputs]
    version = "" if step.version == ANY else f" version {step.version}"
    return Panel(Text("\n".join(lines)), title=Text(f"{step.index + 1} {step.model}{version}"), expand=False)
