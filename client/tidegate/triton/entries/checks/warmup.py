"""Warm-up: requests that Triton makes by itself before a model is ready."""

from collections.abc import Iterator
from math import prod
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import nearest, value_name
from .backends import is_ensemble

_BYTES = {
    "TYPE_BOOL": 1, "TYPE_UINT8": 1, "TYPE_UINT16": 2, "TYPE_UINT32": 4, "TYPE_UINT64": 8, "TYPE_INT8": 1,
    "TYPE_INT16": 2, "TYPE_INT32": 4, "TYPE_INT64": 8, "TYPE_FP16": 2, "TYPE_FP32": 4, "TYPE_FP64": 8, "TYPE_BF16": 2,
}  # fmt: skip
"""Bytes of an element; texts have no fixed size."""


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with the warm-up requests."""
    for number, sample in enumerate(config.model_warmup if not is_ensemble(config) else ()):
        place = f"model_warmup[{number}]"
        said = f"the warm-up '{sample.name}'" if sample.name else f"warm-up {number}"
        if sample.batch_size == 0:
            yield warning(f"Triton skips {said}", entry.where(place), "its batch_size is 0", "write batch_size: 1")
            continue
        if sample.batch_size > max(config.max_batch_size, 1):
            yield error(
                f"{said} has a batch of {sample.batch_size}, and max_batch_size is {config.max_batch_size}",
                entry.where(f"{place}.batch_size"),
                do="write a batch_size that callers may have as well",
            )
        yield from _inputs(entry, config, place, said, sample)


def _inputs(entry: Entry, config: Any, place: str, said: str, sample: Any) -> Iterator[Finding]:
    declared = {tensor.name: tensor for tensor in config.input}
    controls = {tensor.name for tensor in config.sequence_batching.control_input}
    for name, tensor in declared.items():
        if name not in sample.inputs and not tensor.optional:
            yield error(f"{said} has no input '{name}'", entry.where(place), "the model takes it", "add it to inputs")
    for name, data in sample.inputs.items():
        where = entry.where(f'{place}.inputs["{name}"]')
        if name not in declared and name not in controls and declared:
            near = nearest(name, declared)
            yield error(f"{said}: the model has no input '{name}'", where, do=f"did you mean '{near}'?" if near else "")
        elif name in declared:
            yield from _fits(said, name, declared[name], data, where)
        yield from _data(entry, said, name, data, where)


def _fits(said: str, name: str, tensor: Any, data: Any, where: str) -> Iterator[Finding]:
    if data.data_type != tensor.data_type:
        own, given = (value_name(DataType, one.data_type) for one in (tensor, data))
        yield error(f"{said}: the input '{name}' is of {own}, not of {given}", where, do=f"write data_type: {own}")
    if len(data.dims) != len(tensor.dims) or any(
        size not in (-1, given) for size, given in zip(tensor.dims, data.dims, strict=True)
    ):
        yield error(
            f"{said}: the input '{name}' has dims {list(tensor.dims)}, not {list(data.dims)}",
            where,
            do="write sizes that fit, without the batch",
        )


def _data(entry: Entry, said: str, name: str, data: Any, where: str) -> Iterator[Finding]:
    if any(size < 0 for size in data.dims):
        yield error(f"{said}: the input '{name}' has a dimension that varies", where, do="write its size")
        return
    match data.WhichOneof("input_data_type"):
        case None:
            yield error(
                f"{said}: the input '{name}' has no data",
                where,
                do="write zero_data: true, random_data: true or input_data_file",
            )
        case "input_data_file":
            path = f"warmup/{data.input_data_file}"
            size = next((file.size for file in entry.files if file.path == path), None)
            needs = prod(data.dims) * _BYTES.get(value_name(DataType, data.data_type), 0)
            if size is None:
                yield error(
                    f"{said}: there is no file {path}", where, "it lies in the entry's folder warmup", "put it there"
                )
            elif size < needs:
                yield error(f"{said}: {path} has {size} bytes, and the input '{name}' needs {needs}", where)
