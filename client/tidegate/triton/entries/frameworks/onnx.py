"""ONNX models for the ONNX Runtime backend: tensors and weight files."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tidegate_contracts.manifest import is_inside

from ....errors import UsageError
from .protobuf import INT, MANY, TEXT, described, read_message
from .reading import ANY, Reading, Tensor, config_of, unreadable

MODEL = "model.onnx"
_TYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "STRING", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
"""Of `TensorProto.DataType` (onnx.proto)."""
_NO_ZIPMAP = (
    "export it without one: skl2onnx.to_onnx(model, sample, options={'zipmap': False}), or "
    "onnxmltools.convert_lightgbm(model, initial_types=…, zipmap=False)"
)
_INTERFACE: Final = (
    ("initializer", 5, "Tensor", MANY), ("input", 11, "Value", MANY), ("output", 12, "Value", MANY),
    ("sparse_initializer", 15, "SparseTensor", MANY),
)  # fmt: skip
_CLASSES: Final = described(
    "tidegate.onnx",
    {  # of onnx.proto
        "Entry": [("key", 1, TEXT), ("value", 2, TEXT)],
        "Tensor": [("name", 8, TEXT), ("external_data", 13, "Entry", MANY)],
        "SparseTensor": [("values", 1, "Tensor"), ("indices", 2, "Tensor")],
        "Dimension": [("dim_value", 1, INT)],
        "Shape": [("dim", 1, "Dimension", MANY)],
        "TensorType": [("elem_type", 1, INT), ("shape", 2, "Shape")],
        "Other": [],
        "Type": [
            ("tensor", 1, "TensorType"), ("sequence", 4, "Sequence"), ("map", 5, "Other"), ("opaque", 7, "Other"),
            ("sparse_tensor", 8, "Other"), ("optional", 9, "Other"),
        ],
        "Sequence": [("elem_type", 1, "Type")],
        "Value": [("name", 1, TEXT), ("type", 2, "Type")],
        "Attribute": [
            ("t", 5, "Tensor"), ("g", 6, "Graph"), ("tensors", 10, "Tensor", MANY), ("graphs", 11, "Graph", MANY),
        ],
        "Node": [("attribute", 5, "Attribute", MANY)],
        "Graph": [("node", 1, "Node", MANY), *_INTERFACE],
        "Model": [("graph", 7, "Graph")],
        "Interface": _INTERFACE,
        "ModelInterface": [("graph", 7, "Interface")],
    },
)  # fmt: skip


def read(source: Path) -> Reading:
    """Read a `.onnx` file: its tensors, and the weight files next to it. Raises UsageError."""
    graph = read_message(_CLASSES["Model"], source).graph
    inputs, outputs = _tensors(graph, source)
    weights = ((place, _beside(source, place)) for place in sorted(set(_places_outside(graph))))
    return Reading(config_of("onnxruntime", "onnxruntime_onnx"), ((MODEL, source), *weights), inputs, outputs)


def read_tensors(source: Path) -> Reading:
    """Read only the tensors, without the weight files. Raises UsageError."""
    inputs, outputs = _tensors(read_message(_CLASSES["ModelInterface"], source).graph, source)
    return Reading(config_of("onnxruntime", "onnxruntime_onnx"), inputs=inputs, outputs=outputs)


def _tensors(graph: Any, source: Path) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    weights = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    inputs = tuple(_tensor(value, source) for value in graph.input if value.name not in weights)
    outputs = tuple(_tensor(value, source) for value in graph.output)
    if not outputs:
        raise unreadable(source, "ONNX model", "its graph has no output")
    return inputs, outputs


def _tensor(value: Any, source: Path) -> Tensor:
    what, do, tensor = "", "export the model with plain tensors as inputs and outputs", value.type.tensor
    if not value.type.HasField("tensor"):
        kind = next((field.name for field, _ in value.type.ListFields()), "nothing")
        what = f"is a {kind}, but Triton supports only tensors"
        if value.type.sequence.elem_type.HasField("map"):
            what, do = f"{what} (exporters of classifiers add a ZipMap)", _NO_ZIPMAP
    elif tensor.elem_type not in _TYPES:
        what = f"has elements of a type that Triton does not have (ONNX type {tensor.elem_type})"
    elif not tensor.HasField("shape"):
        what = "has a shape of unknown rank"
    if what:
        raise UsageError(f"{value.name!r} {what}", where=source, do=do)
    dims = tuple(each.dim_value if each.dim_value > 0 else ANY for each in tensor.shape.dim)
    return Tensor(value.name, _TYPES[tensor.elem_type], dims)


def _places_outside(graph: Any) -> Iterator[str]:
    tensors = [*graph.initializer]
    for sparse in graph.sparse_initializer:
        tensors += [sparse.values, sparse.indices]
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _places_outside(inner)
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                yield str(PurePosixPath(entry.value))


def _beside(source: Path, place: str) -> Path:
    if not is_inside(place) or place == MODEL:
        why = "weights must be in or below the model's directory"
        do = "save the model again with weights next to it (onnx.save_model(…, location=NAME))"
        raise UsageError(f"its weights are in {place!r}", where=source, why=why, do=do)
    file = source.parent / place
    if not file.is_file():
        raise UsageError(f"its weights are in {place!r}, which does not exist", where=source, do="copy them there")
    return file
