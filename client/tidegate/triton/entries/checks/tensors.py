"""Checks inputs and outputs, and the data of warm-ups and of states."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelInput, ModelInstanceGroup

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import closest, value_name
from .backends import TENSORRT, is_ensemble, resolved
from .paths import check_data

BYTES = {
    "TYPE_BOOL": 1, "TYPE_UINT8": 1, "TYPE_UINT16": 2, "TYPE_UINT32": 4, "TYPE_UINT64": 8, "TYPE_INT8": 1,
    "TYPE_INT16": 2, "TYPE_INT32": 4, "TYPE_INT64": 8, "TYPE_FP16": 2, "TYPE_FP32": 4, "TYPE_FP64": 8, "TYPE_BF16": 2,
}  # fmt: skip
"""Bytes of an element. Texts have no fixed size."""
_TENSORRT_ONLY = ("is_shape_tensor", "is_non_linear_format_io")
_IMAGES = (ModelInput.FORMAT_NHWC, ModelInput.FORMAT_NCHW)


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about a model's inputs and outputs."""
    platform = resolved(entry).platform
    for side in ("input", "output"):
        tensors = getattr(config, side)
        last = {tensor.name: number for number, tensor in enumerate(tensors)}
        for number, tensor in enumerate(tensors):
            yield from _tensor(config, side, f"{side}[{number}]", tensor, platform)
        for name, count in Counter(tensor.name for tensor in tensors if tensor.name).items():
            if count > 1:
                what = f"the {side} '{name}' appears {count} times"
                if sum(bool(getattr(each, "label_filename", "")) for each in tensors if each.name == name) > 1:
                    yield error(what, f"{side}[{last[name]}]", "Triton accepts labels once", "keep one of them")
                    continue
                yield warning(what, f"{side}[{last[name]}]", "Triton uses the first", "keep one of them")
    size, tensors = config.max_batch_size, [*config.input, *config.output]
    if size > 1 and len(tensors) > 1 and all(len(one.dims) > 1 and one.dims[0] == size for one in tensors):
        what = f"all dims start with {size}, which is max_batch_size"
        why = f"dims do not include the batch: Triton expects shapes [ -1, {size}, … ]"
        yield warning(what, "input[0].dims", why, f"remove the {size} where it is the batch")


def _tensor(config: Any, side: str, place: str, tensor: Any, platform: str) -> Iterator[Finding]:
    subject = f"{side} '{tensor.name}'" if tensor.name else f"{side} {place.partition('[')[2][:-1]}"
    if not tensor.name:
        yield error(f"{subject} has no name", place, do='write name: "…"')
    if tensor.data_type == 0:
        yield error(f"{subject} has no data_type", place, do="write one, such as data_type: TYPE_FP32")
    yield from _dims(config.max_batch_size, subject, place, tensor.dims)
    if tensor.HasField("reshape"):
        yield from _reshape(config.max_batch_size, subject, f"{place}.reshape", tensor)
    for field in (each for each in _TENSORRT_ONLY if getattr(tensor, each)):
        if platform != TENSORRT:
            yield error(f"{subject} has {field}", f"{place}.{field}", "only TensorRT models may have it", "remove it")
        elif field == "is_non_linear_format_io" and len(tensor.dims) != 3:
            what = f"{subject} has a non-linear format, but {len(tensor.dims)} dimensions, not 3"
            yield error(what, f"{place}.{field}", do="write three dims (without the batch), or remove it")
    if side == "output":
        return
    if tensor.format in _IMAGES and len(tensor.dims) != 3:
        form = ModelInput.Format.Name(tensor.format)
        what = f"{subject} is an image ({form}) of {len(tensor.dims)} dimensions, not 3"
        yield error(what, f"{place}.format", do="write three dims (without the batch), or no format")
    if tensor.allow_ragged_batch:
        yield from _ragged(config, subject, f"{place}.allow_ragged_batch")


def _dims(batch: int, subject: str, place: str, dims: Any) -> Iterator[Finding]:
    if not dims:
        scalar = "for scalars in a batch, write dims: [ 1 ] and reshape { shape: [ ] }"
        yield error(f"{subject} has no dims", place, do=scalar if batch else "write dims")
    for number, size in enumerate(dims):
        if size < 1 and size != -1:
            why = "a dimension is 1 or more, or -1 if it varies"
            yield error(f"{subject} has a dimension of {size}", f"{place}.dims[{number}]", why, "write its size, or -1")
    if batch > 0 and len(dims) > 1 and dims[0] == -1:
        what = f"{subject} starts with -1, but max_batch_size is {batch}"
        full = ", ".join(map(str, [-1, *dims]))
        why = f"dims do not include the batch: Triton expects the shape [ {full} ]"
        do = "remove the -1 if it is the batch. Keep it if this dimension varies by itself"
        yield warning(what, f"{place}.dims", why, do)


def _reshape(batch: int, subject: str, where: str, tensor: Any) -> Iterator[Finding]:
    shape = list(tensor.reshape.shape)
    if not shape and batch == 0:
        why = "without a batch there would be no tensor"
        yield error(f"{subject}: an empty reshape needs batches", where, why, "set max_batch_size, or write a shape")
    elif any(size < 1 and size != -1 for size in shape):
        yield error(f"{subject}: a dimension of reshape is neither 1 or more, nor -1", where)
    elif _counts(tensor.dims) != _counts(shape):
        varies = "Triton moves no elements across a variable dimension" if -1 in tensor.dims else ""
        what = f"{subject}: dims {list(tensor.dims)} and reshape {shape} have different numbers of elements"
        yield error(what, where, varies, "make both sides equal")


def _counts(shape: Any) -> list[int]:
    """Return the numbers of elements between the variable dimensions."""
    counts = [1]
    for varies, group in groupby(shape, lambda size: size == -1):
        if varies:
            counts += [1 for _ in group]
        else:
            counts[-1] = prod(group)
    return counts


def _ragged(config: Any, subject: str, where: str) -> Iterator[Finding]:
    what = f"{subject}: allow_ragged_batch has no effect"
    if is_ensemble(config):
        yield warning(f"{subject}: allow_ragged_batch has no effect, because an ensemble forms no batches", where)
    elif config.max_batch_size == 0:
        yield warning(what, where, "max_batch_size is 0", "set max_batch_size")
    elif not config.HasField("dynamic_batching") and not config.HasField("sequence_batching"):
        yield warning(what, where, "nothing forms batches", "add dynamic_batching { }")


def check_batch(_entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield errors about tensors that a backend makes from the batch (ValidateBatchIO of core)."""
    for number, made in enumerate(config.batch_input):
        place = f"batch_input[{number}]"
        yield from _names(config, f"{place}.source_input", made.source_input, "input")
        if made.data_type not in (DataType.TYPE_INT32, DataType.TYPE_FP32):
            kind = value_name(DataType, made.data_type) if made.data_type else "missing"
            why, do = "Triton counts only in INT32 and FP32", "write data_type: TYPE_INT32 or TYPE_FP32"
            yield error(f"data_type is {kind}", f"{place}.data_type", why, do)
    for number, made in enumerate(config.batch_output):
        place = f"batch_output[{number}]"
        yield from _names(config, f"{place}.source_input", made.source_input, "input")
        yield from _names(config, f"{place}.target_name", made.target_name, "output")


def _names(config: Any, where: str, names: Any, side: str) -> Iterator[Finding]:
    known, field = [tensor.name for tensor in getattr(config, side)], where.rpartition(".")[2]
    if len(names) != 1 and (side == "input" or len(set(names)) != len(names) or not names):
        why, do = f"Triton needs {'one name' if side == 'input' else 'different names'}", f'write one {field}: "…"'
        yield error(f"{field} is {', '.join(names) or 'missing'}", where, why, do)
    for name in names if known else ():  # otherwise the backend reads them from the model
        if name not in known:
            yield error(f"the model has no {side} '{name}'", where, do=closest(name, known, f"write {known[0]}"))


def check_warm_up(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about the warm-up requests."""
    for number, sample in enumerate(config.model_warmup if not is_ensemble(config) else ()):
        place = f"model_warmup[{number}]"
        subject = f"the warm-up '{sample.name}'" if sample.name else f"warm-up {number}"
        strings = [each for tensor in config.sequence_batching.control_input for each in tensor.control]
        if any(each.data_type == DataType.TYPE_STRING for each in strings):
            why = "Triton sends it as sequence 0, but the model takes texts as sequences"
            yield error(f"{subject} belongs to no sequence", place, why, "remove model_warmup")
        if sample.batch_size == 0:
            yield warning(f"Triton skips {subject}", place, "its batch_size is 0", "write batch_size: 1")
            continue
        if sample.batch_size > max(config.max_batch_size, 1):
            what = f"{subject} has a batch of {sample.batch_size}, but max_batch_size is {config.max_batch_size}"
            yield error(what, f"{place}.batch_size", do="write a batch_size that callers may use too")
        yield from _inputs(entry, config, place, subject, sample.inputs)


def _inputs(entry: Entry, config: Any, place: str, subject: str, inputs: Any) -> Iterator[Finding]:
    declared = {tensor.name: tensor for tensor in config.input}
    controls = {tensor.name for tensor in config.sequence_batching.control_input}
    for name, tensor in declared.items():
        if name not in inputs and not tensor.optional:
            yield error(f"{subject} has no input '{name}'", place, "the model requires it", "add it to inputs")
    for name, data in inputs.items():
        where = f'{place}.inputs["{name}"]'
        if name not in declared and name not in controls and declared:
            yield error(f"{subject}: the model has no input '{name}'", where, do=closest(name, declared))
        else:
            tensor_name = f"{subject}: the input '{name}'"
            yield from _given(entry, tensor_name, where, declared.get(name), data, "input_data_type", "warmup")


def _given(
    entry: Entry, subject: str, where: str, tensor: Any, data: Any, oneof: str, folder: str
) -> Iterator[Finding]:
    """Yield mismatches between data and its tensor, if that is declared, or its file."""
    if tensor is not None and data.data_type != tensor.data_type:
        own, given = (value_name(DataType, each.data_type) for each in (tensor, data))
        yield error(f"{subject} has the type {own}, not {given}", where, do=f"write data_type: {own}")
    if tensor is not None and not (
        len(data.dims) == len(tensor.dims)
        and all(size in (-1, given) for size, given in zip(tensor.dims, data.dims, strict=True))
    ):
        what = f"{subject} has dims {list(tensor.dims)}, not {list(data.dims)}"
        yield error(what, where, do="write matching sizes, without the batch")
    if any(size < 0 for size in data.dims):
        yield error(f"{subject} has a variable dimension", where, do="write its size")
        return
    match data.WhichOneof(oneof):
        case None:
            yield error(f"{subject} has no data", where, do="write zero_data: true, or name a data file")
        case "input_data_file" | "data_file" as field:
            kind, file = value_name(DataType, data.data_type), getattr(data, field)
            yield from check_data(entry, subject, where, folder, file, kind, data.dims, BYTES.get(kind, 0))


def check_state(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about the states of sequences and their initial data. The rules follow GenerateInitialStateData of
    sequence_batch_scheduler.cc, and sequence_state.cc, of core."""
    names: set[str] = set()
    gpu_only = all(group.kind == ModelInstanceGroup.KIND_GPU for group in config.instance_group)
    for number, state in enumerate(config.sequence_batching.state):
        place = f"sequence_batching.state[{number}]"
        subject = f"the state '{state.input_name}'"
        if state.use_growable_memory:
            where = f"{place}.use_growable_memory"
            if not state.use_same_buffer_for_input_output:
                do = "set use_same_buffer_for_input_output: true"
                yield error(f"{subject} grows in two buffers", where, "Triton supports only one growing buffer", do)
            if not (gpu_only and config.instance_group):
                do = "write kind: KIND_GPU, or remove use_growable_memory"
                yield error(f"{subject} grows in memory outside a GPU", where, do=do)
        if not state.initial_state:
            continue
        initial, where = state.initial_state[0], f"{place}.initial_state[0]"
        if len(state.initial_state) > 1:
            what = f"{subject} has {len(state.initial_state)} initial states"
            yield error(what, f"{place}.initial_state[1]", do="keep one")
        if state.input_name in names:
            yield error(f"{subject} appears twice", place, do="keep one of them")
        names.add(state.input_name)
        if not initial.name:
            yield error(f"the initial data of {subject} has no name", where, do='write name: "…"')
        subject = f"the initial_state of '{state.input_name}'"
        yield from _given(entry, subject, where, state, initial, "state_data", "initial_state")
