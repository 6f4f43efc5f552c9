"""The few messages of TensorFlow's files that are read, so that no TensorFlow is needed.

Field numbers are those of `saved_model.proto`, `meta_graph.proto`, `graph.proto`, `node_def.proto`, `attr_value.proto`
and `tensor_shape.proto`. What is not described here (weights above all) is skipped.
"""

from typing import Final

from .messages import BOOL, INT, MANY, TEXT, described

_CLASSES: Final = described(
    "tidegate.tensorflow",
    {
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
