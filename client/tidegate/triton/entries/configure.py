"""Combines the user's options and the contents of the model's files into one Triton configuration."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from ...errors import UsageError
from ...names import nearest_of
from .frameworks.reading import ANY, Reading, Tensor, data_type


@dataclass(frozen=True)
class Options:
    """Options of `tidegate model new`. All other settings are for the user to add to `config.pbtxt`."""

    inputs: Sequence[str] = ()
    """`NAME:TYPE:DIMS` each, such as `image:FP32:3,224,224`. TYPE and DIMS may be empty if the file has them."""
    outputs: Sequence[str] = ()
    max_batch_size: int = 0
    dynamic_batching: bool = False


def complete(reading: Reading, name: str, options: Options) -> Any:
    """Return the ModelConfig of an entry. Raises UsageError if the options do not fit the file's contents. Options
    override the file's tensors of the same name. Raises ValueError for a number that a ModelConfig cannot hold."""
    config = ModelConfig(name=name)
    config.MergeFrom(reading.config)
    config.max_batch_size = options.max_batch_size or config.max_batch_size
    if options.dynamic_batching:
        config.dynamic_batching.SetInParent()
    _add_tensors(config, "input", reading.inputs, options.inputs, reading.whole_shapes)
    _add_tensors(config, "output", reading.outputs, options.outputs, reading.whole_shapes)
    if reading.missing and not (config.input and config.output):
        raise UsageError(
            f"{name}: {reading.missing}",
            do="add --input NAME:TYPE:DIMS --output NAME:TYPE:DIMS, with DIMS such as 3,224,224 (-1 is any size), "
            "without the batch if --max-batch-size is above 0",
        )
    return config


def first_dimension_varies(reading: Reading) -> bool:
    """Return whether the first dimension of all tensors has any size, so that it could be the batch."""
    tensors = (*reading.inputs, *reading.outputs)
    return reading.whole_shapes and bool(tensors) and all(each.dims[:1] == (ANY,) for each in tensors)


def _add_tensors(config: Any, side: str, tensors: Sequence[Tensor], options: Sequence[str], whole_shapes: bool) -> None:
    chosen = {name: (kind, dims) for name, kind, dims in map(_tensor_option, options)}
    into, known = getattr(config, side), [tensor.name for tensor in tensors]
    for tensor in tensors:
        kind, dims = chosen.get(tensor.name, ("", ()))
        if not dims:
            dims = tensor.dims
            if config.max_batch_size and whole_shapes:
                dims = _without_batch(tensor, config.max_batch_size)
            elif not dims:
                what = f"{side} {tensor.name!r} is a scalar, which Triton does not support"
                raise UsageError(what, do="export the model with a dimension, such as [1]")
        added = into.add(name=tensor.name, data_type=_value(kind or tensor.data_type), dims=dims or (1,))
        if not dims:  # Triton requires a dimension, but the model has none
            added.reshape.SetInParent()
    for name, (kind, dims) in chosen.items():
        if name in known:
            continue
        if known:
            raise UsageError(f"the model has no {side} {name!r}", do=nearest_of(name, known, f"{side}s"))
        if not kind or not dims:
            what = f"the type and dimensions of {side} {name!r} are unknown"
            raise UsageError(what, do=f"add --{side} {name}:TYPE:DIMS")
        into.add(name=name, data_type=_value(kind), dims=dims)


def _value(kind: str) -> int:
    return int(DataType.Value(f"TYPE_{kind}"))


def _without_batch(tensor: Tensor, batch: int) -> tuple[int, ...]:
    if tensor.dims[:1] != (ANY,):
        what = f"batches of {batch} are impossible: {tensor.name!r} is {tensor.data_type} {list(tensor.dims)}"
        why = "to form batches, Triton requires a first dimension of any size in every tensor"
        do = "remove --max-batch-size, or export the model with a variable first dimension"
        raise UsageError(what, why=why, do=do)
    return tensor.dims[1:]


def _tensor_option(text: str) -> tuple[str, str, tuple[int, ...]]:
    """Parse `NAME:TYPE:DIMS` into name, Triton's type (or "") and dimensions (or none)."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0]:
        do = "write NAME:TYPE:DIMS, such as image:FP32:3,224,224"
        raise UsageError(f"{text!r} is not a tensor", do=do)
    name, kind, dims = parts
    sizes = dims.strip("[]").split(",") if dims else []
    if not all(re.fullmatch(r"\s*(-1|[1-9]\d*)\s*", each) for each in sizes):
        raise UsageError(f"{text!r}: {dims!r} are not dimensions", do="write numbers with commas. -1 is any size")
    return name, data_type(kind) if kind else "", tuple(int(each) for each in sizes)
