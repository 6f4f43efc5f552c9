"""Inputs and outputs: names, types, dimensions, reshaping, batches, ragged batches, labels."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import Any

from tidegate_contracts.manifest import is_inside
from tritonclient.grpc.model_config_pb2 import DataType, ModelInput

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import nearest
from .backends import is_ensemble, resolved

_IMAGES = (ModelInput.FORMAT_NHWC, ModelInput.FORMAT_NCHW)
_BATCH_TYPES = (DataType.Value("TYPE_INT32"), DataType.Value("TYPE_FP32"))


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with the tensors that a model takes and gives."""
    backend = resolved(entry)
    for side in ("input", "output"):
        tensors = getattr(config, side)
        for number, tensor in enumerate(tensors):
            place = f"{side}[{number}]"
            yield from _tensor(entry, config, side, place, tensor, backend.platform)
        for name, count in Counter(tensor.name for tensor in tensors if tensor.name).items():
            if count > 1:
                last = max(number for number, tensor in enumerate(tensors) if tensor.name == name)
                yield warning(
                    f"the {side} '{name}' stands {count} times",
                    entry.where(f"{side}[{last}]"),
                    "Triton goes by the first",
                    "keep one of them",
                )
    yield from _batch_in_dims(entry, config)
    yield from _batch_tensors(entry, config)


def _batch_in_dims(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield whether all tensors begin with a number that can only be that of the batch."""
    size, tensors = config.max_batch_size, [*config.input, *config.output]
    if size > 1 and len(tensors) > 1 and all(len(one.dims) > 1 and one.dims[0] == size for one in tensors):
        yield warning(
            f"all dims begin with {size}, which is max_batch_size",
            entry.where("input[0].dims"),
            f"dims are without the batch: Triton expects shapes [ -1, {size}, … ]",
            f"take the {size} out where it stands for the batch",
        )


def _tensor(entry: Entry, config: Any, side: str, place: str, tensor: Any, platform: str) -> Iterator[Finding]:
    said = f"{side} '{tensor.name}'" if tensor.name else f"{side} {place.partition('[')[2][:-1]}"
    if not tensor.name:
        yield error(f"{said} has no name", entry.where(place), do='write name: "…"')
    if tensor.data_type == 0:
        yield error(f"{said} has no data_type", entry.where(place), do="write one, such as data_type: TYPE_FP32")
    yield from _dims(entry, config, said, place, tensor)
    yield from _reshape(entry, config, said, place, tensor)
    if side == "input" and tensor.format in _IMAGES and len(tensor.dims) != 3:
        what = f"{said} is an image ({ModelInput.Format.Name(tensor.format)}) of {len(tensor.dims)} dimensions, not 3"
        yield error(what, entry.where(f"{place}.format"), do="write three dims (without the batch), or no format")
    if platform != "tensorrt_plan":
        for field in ("is_shape_tensor", "is_non_linear_format_io"):
            if getattr(tensor, field):
                yield error(
                    f"{said}: {field} is for TensorRT plans only", entry.where(f"{place}.{field}"), do="take it out"
                )
    elif tensor.is_non_linear_format_io and len(tensor.dims) != 3:
        yield error(f"{said}: is_non_linear_format_io needs 3 dims", entry.where(f"{place}.dims"))
    if side == "input":
        yield from _ragged(entry, config, said, place, tensor)
    elif tensor.label_filename:
        yield from _labels(entry, said, place, tensor.label_filename)


def _dims(entry: Entry, config: Any, said: str, place: str, tensor: Any) -> Iterator[Finding]:
    if not tensor.dims:
        scalar = "each element of a batch is a scalar: write dims: [ 1 ] and reshape { shape: [ ] }"
        yield error(f"{said} has no dims", entry.where(place), do=scalar if config.max_batch_size else "write dims")
    for number, size in enumerate(tensor.dims):
        if size < 1 and size != -1:
            yield error(
                f"{said} has a dimension of {size}",
                entry.where(f"{place}.dims[{number}]"),
                "a dimension is 1 or more, or -1 where it varies",
                "write its size, or -1",
            )
    if config.max_batch_size > 0 and len(tensor.dims) > 1 and tensor.dims[0] == -1:
        full = ", ".join(map(str, [-1, *tensor.dims]))
        yield warning(
            f"{said} begins with -1, and max_batch_size is {config.max_batch_size}",
            entry.where(f"{place}.dims"),
            f"dims are without the batch: Triton expects the shape [ {full} ]",
            "take the -1 out where it stands for the batch; leave it where this dimension varies by itself",
        )


def _reshape(entry: Entry, config: Any, said: str, place: str, tensor: Any) -> Iterator[Finding]:
    if not tensor.HasField("reshape"):
        return
    where = entry.where(f"{place}.reshape")
    shape = list(tensor.reshape.shape)
    if not shape and config.max_batch_size == 0:
        yield error(
            f"{said}: an empty reshape needs batches",
            where,
            "without a batch it would be no tensor at all",
            "set max_batch_size, or write a shape",
        )
        return
    if any(size < 1 and size != -1 for size in shape):
        yield error(f"{said}: a dimension of reshape is neither 1 or more, nor -1", where)
    elif _counts(tensor.dims) != _counts(shape):
        varies = "Triton moves no elements across a dimension that varies" if -1 in tensor.dims else ""
        yield error(
            f"{said}: dims {list(tensor.dims)} and reshape {shape} hold different numbers of elements",
            where,
            varies,
            "make both sides equal",
        )


def _counts(shape: Any) -> list[int]:
    """Return the numbers of elements between the dimensions that vary."""
    groups = [(varies, list(group)) for varies, group in groupby(shape, lambda size: size == -1)]
    counts = [1]
    for varies, group in groups:
        if varies:
            counts += [1] * len(group)
        else:
            counts[-1] = prod(group)
    return counts


def _ragged(entry: Entry, config: Any, said: str, place: str, tensor: Any) -> Iterator[Finding]:
    if not tensor.allow_ragged_batch:
        return
    where = entry.where(f"{place}.allow_ragged_batch")
    if is_ensemble(config):
        yield warning(f"{said}: an ensemble makes no batches, so allow_ragged_batch means nothing", where)
    elif config.max_batch_size == 0:
        yield warning(f"{said}: allow_ragged_batch means nothing", where, "max_batch_size is 0", "set max_batch_size")
    elif not config.HasField("dynamic_batching") and not config.HasField("sequence_batching"):
        yield warning(
            f"{said}: allow_ragged_batch means nothing", where, "nothing batches requests", "add dynamic_batching { }"
        )


def _labels(entry: Entry, said: str, place: str, name: str) -> Iterator[Finding]:
    where = entry.where(f"{place}.label_filename")
    paths = [file.path for file in entry.files]
    if not is_inside(name):
        yield error(
            f"{said}: the label file '{name}' lies outside of the entry",
            where,
            do="put it beside config.pbtxt, and write its name",
        )
    elif name not in paths:
        near = nearest(name, paths)
        yield error(
            f"{said}: there is no label file '{name}'",
            where,
            "it lies beside config.pbtxt",
            f"did you mean '{near}'?" if near else "put it there",
        )


def _batch_tensors(entry: Entry, config: Any) -> Iterator[Finding]:
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for side, tensors in (("batch_input", config.batch_input), ("batch_output", config.batch_output)):
        for number, tensor in enumerate(tensors):
            where = entry.where(f"{side}[{number}]")
            if len(tensor.source_input) != 1:
                yield error(f"{side} {number} has {len(tensor.source_input)} source inputs, not one", where)
            if side == "batch_input" and tensor.data_type not in _BATCH_TYPES:
                yield error(f"{side} {number}: data_type must be TYPE_INT32 or TYPE_FP32", where)
            for name in tensor.source_input:
                if name not in inputs:
                    yield _unknown(f"{side} {number}: there is no input '{name}'", where, name, inputs)
            if side == "batch_output":
                for name, count in Counter(tensor.target_name).items():
                    if name not in outputs:
                        yield _unknown(f"{side} {number}: there is no output '{name}'", where, name, outputs)
                    elif count > 1:
                        yield error(f"{side} {number}: the output '{name}' stands twice", where)


def _unknown(what: str, where: str, name: str, known: set[str]) -> Finding:
    near = nearest(name, known)
    return error(what, where, do=f"did you mean '{near}'?" if near else "")
