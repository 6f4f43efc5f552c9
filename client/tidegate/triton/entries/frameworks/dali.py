"""Pipelines of DALI: serialised ones, whose tensors are read, and programs that serialise themselves."""

from pathlib import Path
from typing import Final

from .protobuf import INT, MANY, TEXT, described, parsed
from .python import files_of
from .reading import ANY, Reading, Tensor, bounded, config_of

PIPELINE, PROGRAM = "model.dali", "dali.py"
LIMIT = 256 << 20
_SOURCE = "ExternalSource"
_TYPES = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BOOL")
"""In the order of DALIDataType."""
_CLASSES: Final = described(
    "tidegate.dali",
    {  # as DALI 2.4 writes them
        "Argument": [("name", 1, TEXT), ("number", 4, INT)],
        "Edge": [("name", 1, TEXT), ("dtype", 5, INT), ("ndim", 6, INT)],
        "Operator": [("name", 1, TEXT), ("output", 3, "Edge", MANY), ("args", 4, "Argument", MANY)],
        "Pipeline": [("batch_size", 2, INT), ("op", 5, "Operator", MANY), ("outputs", 7, "Edge", MANY)],
    },
)
_NOTE = (
    "DALI tells Triton the tensors that config.pbtxt does not name, where the pipeline says what they are (dtype, "
    "ndim, output_dtype, output_ndim)"
)


def read(source: Path) -> Reading:
    """Take a pipeline or a folder with it; the tensors of a serialised one are told where it says all of them."""
    if source.is_dir() or source.suffix == ".py":
        return Reading(config_of("dali"), files_of(source, PROGRAM), whole_shapes=False, notes=(_NOTE,))
    pipeline = parsed(_CLASSES["Pipeline"], bounded(source, LIMIT, "a DALI pipeline"), source, "DALI pipeline")
    config, files = config_of("dali"), ((PIPELINE, source),)
    sources = [each for each in pipeline.op if each.name == _SOURCE and each.output]
    said = [{each.name: each.number for each in source.args} for source in sources]
    inputs = [
        _tensor(each.output[0].name, given.get("dtype", ANY), given.get("ndim", 0))
        for each, given in zip(sources, said, strict=True)
    ]
    outputs = [_tensor(each.name, each.dtype, each.ndim) for each in pipeline.outputs]
    told = [each for each in (*inputs, *outputs) if each is not None]
    if not inputs or not outputs or len(told) < len(inputs) + len(outputs):
        return Reading(config, files, whole_shapes=False, notes=(_NOTE,))
    config.max_batch_size = pipeline.batch_size
    return Reading(config, files, tuple(told[: len(inputs)]), tuple(told[len(inputs) :]), whole_shapes=False)


def _tensor(name: str, kind: int, ndim: int) -> Tensor | None:
    if not 0 <= kind < len(_TYPES) or not 0 < ndim < 64:
        return None
    return Tensor(name, _TYPES[kind], (ANY,) * ndim)
