"""Checks rules of single backends: parameters, FIL's tensors, names of TorchScript's tensors, Python programs.

They follow shared_state.h and model.h of fil_backend, pt/model_instance_state.cc and pt/model_state.cc of
pytorch_backend, onnxruntime.cc of onnxruntime_backend and python_be.cc of python_backend. Parameters without a rule
are not checked.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tritonclient.grpc.model_config_pb2 import DataType

from ....findings import Finding, error, warning
from ..entry import Entry
from ..frameworks.python import CLASS, COMPLETES, LIMIT
from ..words import closest, value_name
from .backends import FIL_TYPES, resolved
from .layout import served

_BOOL: Final = re.compile(r"true|false|on|off|[01]", re.IGNORECASE), "true or false"
_FIL_BOOL: Final = re.compile(r"true|false"), "true or false"
_INT: Final = re.compile(r"\s*[-+]?[0-9]+"), "a whole number"
_FLOAT: Final = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"), "a number"


def _one_of(*words: str) -> tuple[re.Pattern[str], str]:
    return re.compile("|".join(map(re.escape, words))), " or ".join(words)


_FORMS: Final[dict[str, dict[str, tuple[re.Pattern[str], str]]]] = {
    "fil": {
        "model_type": _one_of(*FIL_TYPES),
        "layout": _one_of("depth_first", "breadth_first", "layered", "layered_children_together"),
        **dict.fromkeys(("predict_proba", "is_classifier", "xgboost_allow_unknown_field"), _FIL_BOOL),
        **dict.fromkeys(("output_class", "use_experimental_optimizations"), _FIL_BOOL),
        **dict.fromkeys(("transfer_threshold", "chunk_size", "cpu_nthread"), _INT),
        "threshold": _FLOAT,
    },
    "onnxruntime": {
        "execution_mode": _one_of("0", "1"),
        **dict.fromkeys(("intra_op_thread_count", "inter_op_thread_count"), _INT),
        **dict.fromkeys(("enable_mem_arena", "enable_mem_pattern"), _BOOL),
        "cudnn_conv_algo_search": _one_of("0", "1", "2"),
        "arena_extend_strategy": _one_of("0", "1"),
    },
    "python": {"FORCE_CPU_ONLY_INPUT_TENSORS": _one_of("yes", "no")},
    "pytorch": {
        **dict.fromkeys(("DISABLE_OPTIMIZED_EXECUTION", "ENABLE_CACHE_CLEANING", "INFERENCE_MODE"), _BOOL),
        **dict.fromkeys(("DISABLE_CUDNN", "ENABLE_TENSOR_FUSER", "ENABLE_WEIGHT_SHARING"), _BOOL),
        **dict.fromkeys(("ENABLE_JIT_PROFILING", "ENABLE_JIT_EXECUTOR"), _BOOL),
        **dict.fromkeys(("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"), _INT),
    },
}
"""The valid values of each backend's parameters. The backend refuses the model for other values."""
_FIL_TENSORS: Final = {"input": ("input__0",), "output": ("output__0", "treeshap_output")}
_TORCH_TYPES: Final = ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING")
_NUMBERED: Final = re.compile(r".*?__([0-9]*)")


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield errors that the backend would raise for parameters and tensors, independent of the model's file."""
    backend = resolved(entry)
    for key, (form, words) in _FORMS.get(backend.name, {}).items():
        value = config.parameters[key].string_value if key in config.parameters else "${"
        if "${" not in value and not form.fullmatch(value):  # `paths` reports templates
            yield error(f"{key} is '{value}'", f'parameters["{key}"].string_value', do=f"write {words}")
    if backend.name == "fil":
        yield from _fil(config)
    elif backend.platform == "pytorch_libtorch" and not config.runtime:
        yield from _torch(config)


def _fil(config: Any) -> Iterator[Finding]:
    parameters = {key: each.string_value for key, each in config.parameters.items()}
    if not {"is_classifier", "output_class"} & parameters.keys():
        do = "write is_classifier for 25.09 and later, and output_class for earlier releases: true or false"
        yield error("it is unknown whether the model is a classifier", "parameters", "FIL has no default", do)
    elif "true" in (parameters.get("is_classifier"), parameters.get("output_class")) and "threshold" not in parameters:
        yield error("a classifier has no threshold", "parameters", "FIL has no default", 'write threshold: "0.5"')
    for side, names in _FIL_TENSORS.items():
        tensors = getattr(config, side)
        for number, tensor in enumerate(tensors):
            if tensor.name == "treeshap_output":
                continue
            where, subject = f"{side}[{number}]", f"{side} '{tensor.name}'"
            if tensor.name not in names:
                why = f"FIL's name for it is {names[0]}"
                do = closest(tensor.name, names, f"write {names[0]}")
                yield error(f"FIL has no {subject}", f"{where}.name", why, do)
            if tensor.data_type not in (0, DataType.TYPE_FP32):
                what = f"{subject} is {value_name(DataType, tensor.data_type)}"
                yield error(what, f"{where}.data_type", "FIL computes only in FP32", "write data_type: TYPE_FP32")
            if len(tensor.dims) != (rank := 1 if config.max_batch_size > 0 else 2):
                what, do = f"{subject} has {len(tensor.dims)} dims", f"write {rank}"
                yield error(what, f"{where}.dims", "FIL's tensors are rows of numbers", do)
        if all(tensor.name in names[1:] for tensor in tensors):
            yield error(f"the {side} {names[0]} is not declared", side, "FIL needs it", f"declare {names[0]}")
    if config.max_batch_size == 0:
        what = "max_batch_size is 0, so dims must include the rows"
        do = "set max_batch_size, and write dims for one row"
        yield warning(what, "max_batch_size", "FIL's documentation requires a batch size", do)


def _torch(config: Any) -> Iterator[Finding]:
    for side in ("input", "output"):
        if not getattr(config, side):
            yield error(f"no {side} is declared", side, "the PyTorch backend finds none in the model", "declare each")
    states = config.sequence_batching.state
    sides = {"input": config.input, "output": config.output, "sequence_batching.state": states}
    tensors = [(f"{side}[{at}]", each) for side, own in sides.items() for at, each in enumerate(own)]
    for where, tensor in tensors:
        kind = value_name(DataType, tensor.data_type).removeprefix("TYPE_")
        if tensor.data_type and kind not in _TORCH_TYPES:
            yield error(f"TYPE_{kind} does not exist in PyTorch", f"{where}.data_type", do="write a type of PyTorch")
        shape = tensor.reshape.shape if "state" not in where and tensor.HasField("reshape") else tensor.dims
        if kind == "STRING" and len(shape) + (config.max_batch_size > 0) > 1:
            why = "the PyTorch backend supports only lists of texts"
            yield error(f"texts with {len(shape)} dims", f"{where}.dims", why, "write one, or none with batches")
    controls = [each.name for each in config.sequence_batching.control_input if each.control]
    wanted = [each.input_name for each in states] + [each.output_name for each in states] + controls
    if states:
        wanted += [each.name for each in (*config.input, *config.output)]
    for name in dict.fromkeys(wanted):
        if index_of(name) is None:
            do = "end it with __ and its position, such as INPUT__0"
            yield error(f"'{name}' has no number", "sequence_batching", "the PyTorch backend needs one here", do)


def check_torch_inputs(config: Any, arguments: Sequence[str] | None) -> Iterator[Finding]:
    """Yield inputs of TorchScript whose numbers repeat or have a gap. Inputs with names in `arguments` need none. If a
    name is neither an argument nor numbered, the backend uses the order of config.pbtxt for all inputs."""
    places = {each.name: f"input[{at}].name" for at, each in enumerate(config.input)}
    places |= {each.name: "sequence_batching.control_input" for each in config.sequence_batching.control_input}
    places |= {each.input_name: "sequence_batching.state" for each in config.sequence_batching.state}
    if arguments is not None and all(each.name in arguments for each in config.input):
        return
    numbers = {name: index_of(name) for name in places}
    if None in numbers.values():
        mixed = [name for name, number in numbers.items() if number is not None or name in (arguments or ())]
        if mixed:
            others = [name for name in numbers if name not in mixed]
            what = f"'{mixed[0]}' has a position, but '{others[0]}' does not"
            why = "the PyTorch backend then uses the order of config.pbtxt for all of them"
            yield warning(what, places[others[0]], why, "number all inputs or none")
        return
    for number, count in Counter(numbers.values()).items():
        if count > 1:
            second = [name for name in numbers if numbers[name] == number][1]
            what = f"{count} inputs have the number {number}"
            yield error(what, places[second], "forward gets only one of them", "number them from 0")
    for name, number in numbers.items():
        if (number or 0) >= len(numbers):
            what = f"the input '{name}' has the number {number}, but there are {len(numbers)} inputs"
            yield error(what, places[name], "the PyTorch backend writes beyond its list", "number them from 0")


def index_of(name: str) -> int | None:
    """Return the number at the end of a tensor's name, as the PyTorch backend reads it: NAME__0."""
    found = _NUMBERED.fullmatch(name)
    return int(found[1] or 0) if found else None


def check_program(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about the program of the Python backend, which is parsed and never run."""
    if resolved(entry).name != "python" or config.runtime:
        return
    programs = list(_programs(entry, config))
    for path, source in programs:
        yield from _program(path, source)
    if not any(COMPLETES in source for _, source in programs):
        for side in ("input", "output"):
            if not getattr(config, side):
                what = f"no {side} is declared"
                why = f"the Python backend has none then, except those of its {COMPLETES.decode()}"
                found = error if config.batch_input or config.batch_output else warning  # Triton refuses their names.
                yield found(what, "", why, f"declare each {side} with its name, data_type and dims")


def _programs(entry: Entry, config: Any) -> Iterator[tuple[str, bytes]]:
    name = config.default_model_filename or "model.py"
    sizes = {file.path: file.size for file in entry.files}
    for path in (f"{version}/{name}" for version in served(entry)):
        if name.endswith(".py") and sizes.get(path, LIMIT) < LIMIT:
            yield path, (entry.folder / path).read_bytes()


def _program(path: str, source: bytes) -> Iterator[Finding]:
    if b"\0" in source:
        yield error("the program is not text", path)
        return
    try:
        ast.parse(source, path)
    except SyntaxError as problem:
        yield error(f"the program cannot be parsed: {problem.msg}", f"{path}:{problem.lineno or 1}")
        return
    except (RecursionError, MemoryError):
        return  # nested too deeply to check. Python reports it when it runs the program.
    if CLASS not in source:
        do = f"name the model's class {CLASS.decode()}"
        yield error(f"there is no class {CLASS.decode()}", path, "Triton requires it", do)
