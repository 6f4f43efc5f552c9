"""ONNX models, for the ONNX Runtime backend: tensors and files of weights as the model names them."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tidegate_contracts.manifest import is_inside

from ....errors import UsageError, install
from .reading import ANY, NoLibraryError, Reading, Tensor, bounded, config_of, unreadable
from .wire import reduced

MODEL = "model.onnx"
LIMIT = 2 << 30
"""Protobuf's own: larger models keep their weights in files beside them."""
_NAME = {8: None}
_OUTSIDE = {7: {5: _NAME, 11: None, 12: None, 15: {1: _NAME}}}
"""Of ModelProto: its graph, with what goes in and out, and of weights, sparse ones too, the names."""
_TYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "STRING", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
"""Of `TensorProto.DataType` (onnx.proto)."""


def read(source: Path) -> Reading:
    """Read a `.onnx` file; raises UsageError, also when the library `onnx` is not installed."""
    onnx = library(source)
    graph = _graph(onnx, bounded(source, LIMIT, "an ONNX model in one file"), source)
    inputs, outputs = _tensors(graph, source)
    files = [(MODEL, source)]
    for place in sorted(set(_places_outside(graph))):
        files.append((place, _beside(source, place)))
    return Reading(config_of("onnxruntime", "onnxruntime_onnx"), tuple(files), inputs, outputs)


def read_tensors(source: Path) -> Reading:
    """Read the tensors alone, without the weights, however large they are; raises as `read` does."""
    onnx = library(source)
    inputs, outputs = _tensors(_graph(onnx, reduced(source, _OUTSIDE, "ONNX model"), source), source)
    return Reading(config_of("onnxruntime", "onnxruntime_onnx"), inputs=inputs, outputs=outputs)


def library(source: Path) -> Any:
    """Return the library that reads ONNX models; raises NoLibraryError."""
    try:
        import onnx
    except ImportError:
        raise NoLibraryError(
            "the tensors of an ONNX model are read with the library onnx, which is not installed",
            where=str(source), do=install("onnx"),
        ) from None  # fmt: skip
    return onnx


def _graph(library: Any, content: bytes, source: Path) -> Any:
    try:
        return library.load_model_from_string(content).graph
    except Exception as error:
        raise unreadable(source, "ONNX model", error) from None


def _tensors(graph: Any, source: Path) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    weights = {each.name for each in graph.initializer} | {each.values.name for each in graph.sparse_initializer}
    try:
        inputs = tuple(_tensor(value) for value in graph.input if value.name not in weights)
        outputs = tuple(_tensor(value) for value in graph.output)
    except ValueError as error:
        raise UsageError(
            str(error), where=str(source), do="export the model with plain tensors on its outside"
        ) from None
    if not outputs:
        raise unreadable(source, "ONNX model", "its graph has no output")
    return inputs, outputs


def _tensor(value: Any) -> Tensor:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ValueError(f"{value.name!r} is a {(kind or 'nothing').removesuffix('_type')}; Triton passes tensors only")
    tensor = value.type.tensor_type
    if tensor.elem_type not in _TYPES:
        raise ValueError(
            f"{value.name!r} has elements of a type that Triton does not have (ONNX type {tensor.elem_type})"
        )
    if not tensor.HasField("shape"):
        raise ValueError(f"{value.name!r} has a shape of unknown rank")
    dims = tuple(
        each.dim_value if each.HasField("dim_value") and each.dim_value > 0 else ANY for each in tensor.shape.dim
    )
    return Tensor(value.name, _TYPES[tensor.elem_type], dims)


def _places_outside(graph: Any) -> Iterator[str]:
    """Yield the paths of the files with weights, of a graph and those within it."""
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
        raise UsageError(
            f"its weights lie in {place!r}", where=str(source), why="weights must lie in or below the model's folder",
            do="save the model again with weights beside it (onnx.save_model(…, location=NAME))",
        )  # fmt: skip
    file = source.parent / place
    if not file.is_file():
        raise UsageError(f"its weights lie in {place!r}, which is not there", where=str(source), do="copy it there")
    return file
