"""Compares the tensors in config.pbtxt with those in the model's own file.

The rules are those of the backends: ValidateInputs and ValidateOutputs of onnxruntime.cc and openvino.cc, and
pytorch's model_instance_state.cc. `frameworks` reads the files. It runs and unpickles nothing, and skips weights.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tritonclient.grpc.model_config_pb2 import DataType

from ....errors import UsageError
from ....findings import Finding, error, warning
from ..entry import Entry
from ..frameworks import fil, onnx, openvino, torch
from ..frameworks.reading import ANY, Reading, Tensor, UnreadableError
from ..words import closest, value_name
from .backends import FIL_FILES, fil_type, resolved
from .layout import served
from .rules import check_torch_inputs

_RESHAPING = "RESHAPE_IO_LAYERS"


class _Format(NamedTuple):
    read: Callable[[Path], Reading]
    file: str
    holder: str = ""  # A file that represents a directory.
    converts: bool = False
    """Whether the backend converts types, uses any first dimension as the batch's, and accepts any number for an
    output's variable dimension. Otherwise types must be equal, and only a variable dimension matches a variable one."""
    inferred: bool = False  # Whether the backend may know more of an output's size than the file contains.


_FORMATS = {
    "onnxruntime_onnx": _Format(onnx.read_tensors, onnx.MODEL, onnx.MODEL, inferred=True),
    "openvino": _Format(openvino.read, openvino.MODEL, converts=True),
    "pytorch_libtorch": _Format(torch.read_script, torch.SCRIPT),
}  # fmt: skip
_FORESTS = {
    "xgboost_json": fil.read_xgboost_json, "xgboost_ubj": fil.read_xgboost_ubjson, "lightgbm": fil.read_lightgbm,
    "treelite_checkpoint": fil.read_treelite,
}  # fmt: skip
_VLLM_ARGUMENTS = "model.json"
_JSON_BYTES = 16 << 20  # XGBoost's JSON is read as a whole, and takes many times its size in memory.


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield differences between the configuration and the files of the served versions."""
    if resolved(entry).name == "vllm":
        yield from _vllm_arguments(entry)
    if (form := _format(entry, config)) is None:
        return
    if form.read is torch.read_script and not any(_paths(entry, config, form)):
        yield from check_torch_inputs(config, None)  # an empty file cannot be read
    for path in _paths(entry, config, form):
        try:
            reading = form.read(entry.folder / path)
        except UnreadableError as problem:
            yield error(problem.what, path, problem.why, problem.do)
            continue
        except UsageError as problem:
            yield warning(f"its tensors were not compared: {problem.what}", path, problem.why, problem.do)
            continue
        yield from _Comparison(resolved(entry).name, config, form, reading, path).findings()


def _vllm_arguments(entry: Entry) -> Iterator[Finding]:
    """Yield an error if a version's model.json has no arguments for vLLM's AsyncEngineArgs."""
    sizes = {file.path: file.size for file in entry.files}
    for path in (f"{version}/{_VLLM_ARGUMENTS}" for version in served(entry)):
        if sizes.get(path, _JSON_BYTES) >= _JSON_BYTES:
            continue
        try:
            is_object = isinstance(json.loads((entry.folder / path).read_bytes()), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            yield error("not a JSON object", path, "vLLM takes its arguments from it", 'write {"model": "…"}')


def _format(entry: Entry, config: Any) -> _Format | None:
    backend = resolved(entry)
    if config.runtime or config.cc_model_filenames:
        return None
    if backend.name == "fil":
        kind = fil_type(config)
        return _Format(_FORESTS[kind], FIL_FILES[kind]) if kind in _FORESTS else None
    return _FORMATS.get(backend.platform or backend.name)


def _paths(entry: Entry, config: Any, form: _Format) -> Iterator[str]:
    """Yield the file to read of each version, relative to the entry. Skips empty files."""
    sizes = {file.path: file.size for file in entry.files}
    name = config.default_model_filename or form.file
    for version in served(entry):
        path = f"{version}/{name}"
        inner = f"{path}/{form.holder}"
        if form.holder and sizes.get(inner):
            yield inner
        elif sizes.get(path) and (form.read is not fil.read_xgboost_json or sizes[path] <= _JSON_BYTES):
            yield path


@dataclass(frozen=True)
class _Comparison:
    backend: str
    config: Any
    form: _Format
    reading: Reading
    path: str

    def findings(self) -> Iterator[Finding]:
        config = self.config
        match self.backend:
            case "fil":
                yield from self._features()
            case "pytorch":
                yield from self._arguments()
            case _ if not (config.input and config.output):
                if not self.form.converts:  # the backend adds what is not declared
                    yield from self._batches([*self.reading.inputs, *self.reading.outputs])
            case _:
                yield from self._tensors()

    def _tensors(self) -> Iterator[Finding]:
        inputs = {tensor.name: tensor for tensor in self.reading.inputs}
        outputs = {tensor.name: tensor for tensor in self.reading.outputs}
        declared = [(f"input[{number}]", tensor, inputs) for number, tensor in enumerate(self.config.input)]
        declared += [(f"output[{number}]", tensor, outputs) for number, tensor in enumerate(self.config.output)]
        shaped = []
        for place, tensor, known in declared:
            if tensor.name in known:
                yield from self._type(place, tensor, known[tensor.name])
                if not self._is_shaped_otherwise(place, tensor):
                    shaped.append((place, tensor, known[tensor.name]))
            # An optional input may be a weight that requests replace.
            elif tensor.name and not (known is inputs and tensor.optional):
                yield self._unknown_tensor(place, tensor.name, known)
        others = {name: place for name, place in _other_inputs(self.config) if name}
        for name in others.keys() - inputs.keys():
            yield self._unknown_tensor(others[name], name, inputs)
        required = others.keys() | {tensor.name for tensor in self.config.input if not tensor.optional}
        lacking = inputs.keys() - required - {tensor.name for tensor in self.config.input}
        for name in lacking if len(lacking) > len(required - inputs.keys()) else ():  # otherwise a name is wrong
            what = f"the model has the input '{name}', which is not declared"
            yield error(what, "input", self._described(inputs[name]), "declare it")
        refused = not self.form.converts and list(self._batches([own for _, _, own in shaped if own.dims]))
        if refused:
            yield from refused
            return
        for place, tensor, own in shaped:
            is_ragged = place.startswith("input") and tensor.allow_ragged_batch
            yield from self._ragged(place, tensor, own) if is_ragged else self._dims(place, tensor, own)

    def _is_shaped_otherwise(self, place: str, tensor: Any) -> bool:
        if place.startswith("output") and any(tensor.name in each.target_name for each in self.config.batch_output):
            return True
        return _parameter(self.config, _RESHAPING).lower() == "yes"

    def _type(self, place: str, tensor: Any, own: Tensor) -> Iterator[Finding]:
        wanted = f"TYPE_{own.data_type}"
        if not self.form.converts and tensor.data_type and tensor.data_type != DataType.Value(wanted):
            what = f"{_called(place, tensor)} is {value_name(DataType, tensor.data_type)}, but the model has {wanted}"
            yield error(what, f"{place}.data_type", self._described(own), f"write data_type: {wanted}")

    def _batches(self, tensors: Sequence[Tensor]) -> Iterator[Finding]:
        size = self.config.max_batch_size
        fixed = next((own for own in tensors if own.dims[:1] != (ANY,)), None)
        if size > 0 and fixed is not None:
            what = f"max_batch_size is {size}, but the model takes no batches"
            what += f": '{fixed.name}' has no variable first dimension"
            do = "set max_batch_size: 0 and write all dims, or export the model with a variable first dimension"
            yield error(what, "max_batch_size", self._described(fixed), do)

    def _ragged(self, place: str, tensor: Any, own: Tensor) -> Iterator[Finding]:
        if own.dims != (ANY,):
            what = f"{_called(place, tensor)} is ragged, but in the model it is not one variable dimension"
            yield error(what, f"{place}.allow_ragged_batch", self._described(own), "remove allow_ragged_batch")

    def _dims(self, place: str, tensor: Any, own: Tensor) -> Iterator[Finding]:
        field = "reshape" if tensor.HasField("reshape") else "dims"
        shape = tuple(tensor.reshape.shape if field == "reshape" else tensor.dims)
        batches, is_output = self.config.max_batch_size > 0, place.startswith("output")
        dims = own.dims[1:] if batches and own.dims else own.dims
        where = f"{place}.{field}"
        if not own.dims and all(size == 1 for size in shape):
            return  # a scalar, which backends accept with any rank
        fits, sure = len(shape) == len(dims), True
        for mine, size in zip(shape, dims, strict=False):
            if size == ANY:
                sure &= mine == ANY or not is_output or self.form.converts
            elif mine != size and not (mine == ANY and batches and not is_output and self.form.converts):
                fits = False
        do = f"write {_written(dims)}" if field == "dims" else f"reshape it to {list(dims)}"
        if not fits or not (sure or self.form.inferred):
            without = ", without the batch" if batches else ""
            what = f"{_called(place, tensor)} has {field} {list(shape)}, but the model {list(dims)}{without}"
            yield error(what, where, self._described(own), do)
        elif not sure:
            why = f"{self._described(own)}: Triton refuses it unless ONNX Runtime infers this size"
            yield warning(f"{_called(place, tensor)} has {field} {list(shape)}", where, why, do)

    def _features(self) -> Iterator[Finding]:
        """Yield warnings about rows of another length, which FIL does not check and would misread."""
        (own,) = self.reading.inputs
        for number, tensor in enumerate(self.config.input):
            if tensor.name == own.name and not tensor.HasField("reshape") and tuple(tensor.dims) != own.dims:
                what = f"input '{tensor.name}' has dims {list(tensor.dims)}, but the forest has {own.dims[0]} features"
                why = f"the backend reads rows of the length in {self.path}, so answers would be wrong"
                yield warning(what, f"input[{number}].dims", why, f"write {_written(own.dims)}")
        (answer,) = self.reading.outputs
        classifier = "true" in (_parameter(self.config, "is_classifier"), _parameter(self.config, "output_class"))
        proba = classifier and _parameter(self.config, "predict_proba") == "true"
        classes = answer.dims[0] if proba else 1
        for number, tensor in enumerate(self.config.output):
            # With two classes, some releases return one probability and others both.
            wrong = tensor.dims[-1:] != [classes] and not (proba and classes == 1 and tensor.dims[-1:] == [2])
            if tensor.name == answer.name and wrong and tensor.dims and not tensor.HasField("reshape"):
                what = f"output '{tensor.name}' has dims {list(tensor.dims)}, but the forest has {classes} per row"
                yield error(what, f"output[{number}].dims", f"{self.path} has them", f"write {_written((classes,))}")

    def _arguments(self) -> Iterator[Finding]:
        taken = self.reading.arguments
        yield from check_torch_inputs(self.config, taken)
        declared = len(self.config.input) + len(list(_other_inputs(self.config)))
        if taken is not None and self.config.input and declared != len(taken):
            what, do = f"{declared} inputs are declared, but forward takes {len(taken)}", f"declare {len(taken)}"
            yield error(what, "input", f"in {self.path} it takes {', '.join(taken) or 'nothing'}", do)

    def _unknown_tensor(self, place: str, name: str, known: dict[str, Tensor]) -> Finding:
        side = "output" if place.startswith("output") else "input"
        where = f"{place}.name" if place.startswith(f"{side}[") else place
        do = closest(name, known, f"write the {side}s of the model")
        return error(f"the model has no {side} '{name}'", where, f"{self.path} has {', '.join(known) or 'none'}", do)

    def _described(self, own: Tensor) -> str:
        return f"{self.path} has it as TYPE_{own.data_type} {list(own.dims)}"


def _other_inputs(config: Any) -> Iterator[tuple[str, str]]:
    """Yield the inputs that Triton itself sends to a model, and their places."""
    for number, batch in enumerate(config.batch_input):
        for name in batch.target_name:
            yield name, f"batch_input[{number}]"
    sequences = config.sequence_batching
    for number, control in enumerate(sequences.control_input):
        if control.control:
            yield control.name, f"sequence_batching.control_input[{number}]"
    for number, state in enumerate(sequences.state):
        yield state.input_name, f"sequence_batching.state[{number}]"


def _called(place: str, tensor: Any) -> str:
    return f"{place.partition('[')[0]} '{tensor.name}'"


def _parameter(config: Any, name: str) -> str:
    return str(config.parameters[name].string_value) if name in config.parameters else ""


def _written(dims: Sequence[int]) -> str:
    return f"dims: [ {', '.join(map(str, dims))} ]" if dims else "dims: [ 1 ] and reshape { shape: [ ] }"
