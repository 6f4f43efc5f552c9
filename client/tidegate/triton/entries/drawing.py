"""Draws an ensemble: its steps as boxes, in the order in which they can run, with the tensors between them."""

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text
from tritonclient.grpc.model_config_pb2 import ModelConfig

from .ensemble import Graph, Step, graph
from .frameworks.reading import ANY
from .show import Shown, ShownTensor


def draw(config: ModelConfig, shown: Shown) -> RenderableType:
    """Return the drawing: the ensemble's inputs, a row of boxes for the steps that can run at once, its outputs."""
    drawn = graph(config)
    parts: list[RenderableType] = [_outside("input", shown.inputs)]
    for wave in drawn.order:
        parts += [_arrow(), Columns([_box(drawn, drawn.steps[index]) for index in wave], padding=(0, 2))]
    parts += [_arrow(), _outside("output", shown.outputs)]
    ready = {index for wave in drawn.order for index in wave}
    if stuck := [_box(drawn, step) for step in drawn.steps if step.index not in ready]:
        parts += [Text("never run, for they wait for tensors that nobody makes, or for themselves:"), Columns(stuck)]
    return Group(*parts)


def shape(tensor: ShownTensor) -> str:
    """Return a tensor's type and shape as people write them: `FP32[?,3]`."""
    return f"{tensor.data_type}[{','.join('?' if size == ANY else str(size) for size in tensor.shape)}]"


def _outside(side: str, tensors: tuple[ShownTensor, ...]) -> Text:
    return Text("\n".join(f"{side}  {tensor.name}  {shape(tensor)}" for tensor in tensors))


def _arrow() -> Text:
    return Text("  │\n  ▼")


def _box(drawn: Graph, step: Step) -> Panel:
    lines = []
    for of_model, of_ensemble in step.inputs:
        producer = drawn.producers.get(of_ensemble)
        lines.append(f"{of_model} ← {of_ensemble}{f' (of {producer.model})' if producer else ''}")
    lines += [f"{of_model} → {of_ensemble}" for of_model, of_ensemble in step.outputs]
    version = "" if step.version == ANY else f" version {step.version}"
    return Panel(Text("\n".join(lines)), title=Text(f"{step.index + 1} {step.model}{version}"), expand=False)
