"""TensorFlow's SavedModel and GraphDef, for the TensorFlow backend."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ....errors import UsageError
from .protobuf import BOOL, INT, MANY, TEXT, described, parsed, read_message
from .python import files_of
from .reading import ANY, Reading, Tensor, bounded, config_of, unreadable

SAVED_MODEL, SAVED_MODEL_FILE, GRAPH = "model.savedmodel", "saved_model.pb", "model.graphdef"
LIMIT = 2 << 30
TAG, SIGNATURE = "serve", "serving_default"
"""What the backend looks for, unless parameters TF_GRAPH_TAG and TF_SIGNATURE_DEF say otherwise."""
_TYPES = {
    1: "FP32", 2: "FP64", 3: "INT32", 4: "UINT8", 5: "INT16", 6: "INT8", 7: "STRING", 9: "INT64", 10: "BOOL",
    14: "BF16", 17: "UINT16", 19: "FP16", 22: "UINT32", 23: "UINT64",
}  # fmt: skip
"""Of `DataType` (types.proto)."""
_NOTE = (
    "Triton's images have had no TensorFlow backend since 25.03: the target needs an image with it, "
    "or the model goes to ONNX first (tf2onnx)"
)
_CLASSES: Final = described(
    "tidegate.tensorflow",
    {  # of saved_model.proto, meta_graph.proto, graph.proto, node_def.proto, attr_value.proto and tensor_shape.proto
        "Dim": [("size", 1, INT)],
        "Shape": [("dim", 2, "Dim", MANY), ("unknown_rank", 3, BOOL)],
        "Shapes": [("shape", 7, "Shape", MANY)],
        "Attribute": [("type", 6, INT), ("shape", 7, "Shape"), ("list", 1, "Shapes")],
        "NamedAttribute": [("key", 1, TEXT), ("value", 2, "Attribute")],
        "Node": [("name", 1, TEXT), ("op", 2, TEXT), ("input", 3, TEXT, MANY), ("attr", 5, "NamedAttribute", MANY)],
        "GraphDef": [("node", 1, "Node", MANY)],
        "TensorInfo": [("name", 1, TEXT), ("dtype", 2, INT), ("tensor_shape", 3, "Shape")],
        "NamedTensor": [("key", 1, TEXT), ("value", 2, "TensorInfo")],
        "Signature": [("inputs", 1, "NamedTensor", MANY), ("outputs", 2, "NamedTensor", MANY)],
        "NamedSignature": [("key", 1, TEXT), ("value", 2, "Signature")],
        "MetaInfo": [("tags", 4, TEXT, MANY)],
        "MetaGraph": [("meta_info_def", 1, "MetaInfo"), ("signature_def", 5, "NamedSignature", MANY)],
        "SavedModel": [("schema_version", 1, INT), ("meta_graphs", 2, "MetaGraph", MANY)],
    },
)
SavedModel: Final = _CLASSES["SavedModel"]
GraphDef: Final = _CLASSES["GraphDef"]
_NO_OUTPUT = frozenset({"Const", "NoOp", "Assert", "Placeholder", "PlaceholderWithDefault", "VarHandleOp"})


def read_saved_model(source: Path) -> Reading:
    """Read a folder with `saved_model.pb`."""
    file = source / SAVED_MODEL_FILE
    model = read_message(SavedModel, file, "SavedModel")
    tags = [list(graph.meta_info_def.tags) for graph in model.meta_graphs]
    if not tags:
        raise unreadable(file, "SavedModel", "it has no graph")
    graph = next((each for each in model.meta_graphs if TAG in each.meta_info_def.tags), model.meta_graphs[0])
    parameters = []
    if TAG not in graph.meta_info_def.tags and graph.meta_info_def.tags:
        parameters.append(("TF_GRAPH_TAG", graph.meta_info_def.tags[0]))
    signatures = {each.key: each.value for each in graph.signature_def if each.value.outputs}
    name = _signature(signatures, file)
    if name != SIGNATURE:
        parameters.append(("TF_SIGNATURE_DEF", name))
    config = config_of("tensorflow", "tensorflow_savedmodel", parameters)
    files = tuple((f"{SAVED_MODEL}/{below}", path) for below, path in files_of(source))
    inputs, outputs = (_named_tensors(side, file) for side in (signatures[name].inputs, signatures[name].outputs))
    return Reading(config, files, inputs, outputs, notes=(_NOTE,))


def read_graph(source: Path) -> Reading:
    """Read a frozen GraphDef; what its outputs are like is told only where the graph says so (`_output_shapes`)."""
    graph = parsed(GraphDef, bounded(source, LIMIT, "a GraphDef"), source, "GraphDef")
    nodes = {node.name: node for node in graph.node}
    if not nodes or not all(node.op for node in nodes.values()):
        raise unreadable(source, "GraphDef", "it has no nodes")
    used = {text.removeprefix("^").partition(":")[0] for node in nodes.values() for text in node.input}
    entrances = [node for node in nodes.values() if node.op == "Placeholder"]
    inputs = tuple(
        _tensor(node.name, _attribute(node, "dtype").type, _attribute(node, "shape").shape, source)
        for node in entrances
    )
    exits = [node for node in nodes.values() if node.name not in used and node.op not in _NO_OUTPUT]
    outputs, missing = [], ""
    for node in exits:
        shapes = _attribute(node, "_output_shapes").list.shape
        if len(shapes) != 1 or shapes[0].unknown_rank or not _attribute(node, "T").type:
            names = ", ".join(each.name for each in exits)
            missing = f"a GraphDef does not tell the types and shapes of its outputs, which seem to be: {names}"
            break
        outputs.append(_tensor(node.name, _attribute(node, "T").type, shapes[0], source))
    config, told = config_of("tensorflow", "tensorflow_graphdef"), () if missing else tuple(outputs)
    return Reading(config, ((GRAPH, source),), inputs, told, missing=missing, notes=(_NOTE,))


def _signature(signatures: dict[str, Any], file: Path) -> str:
    if SIGNATURE in signatures:
        return SIGNATURE
    callable_ones = sorted(name for name in signatures if not name.startswith("__"))
    if len(callable_ones) != 1:
        what = f"it has no signature {SIGNATURE!r}, but {', '.join(callable_ones) or 'none at all'}"
        do = f"save it with signatures={{{SIGNATURE!r}: …}} (Keras: model.export(…))"
        raise UsageError(what, where=file, do=do)
    return callable_ones[0]


def _named_tensors(named: Iterable[Any], file: Path) -> tuple[Tensor, ...]:
    tensors = sorted(named, key=lambda each: str(each.key))
    return tuple(_tensor(each.key, each.value.dtype, each.value.tensor_shape, file) for each in tensors)


def _attribute(node: Any, name: str) -> Any:
    return next((each.value for each in node.attr if each.key == name), type(node)().attr.add().value)


def _tensor(name: str, kind: int, shape: Any, file: Path) -> Tensor:
    if kind not in _TYPES:
        raise UsageError(f"tensor {name!r} has a type that Triton does not have (TensorFlow type {kind})", where=file)
    if shape.unknown_rank:
        do = "save the model with an input signature that says the shapes (tf.TensorSpec)"
        raise UsageError(f"tensor {name!r} has a shape of unknown rank", where=file, do=do)
    return Tensor(name, _TYPES[kind], tuple(each.size if each.size > 0 else ANY for each in shape.dim))
