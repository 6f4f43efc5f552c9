"""One field of a valid entry is changed: a check reports it, or a real Triton accepts the entry."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpc
from google.protobuf.descriptor import FieldDescriptor
from onnx import TensorProto, helper
from tidegate.findings import Finding, errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.text import config_text, parse_config

from lab.local_plane.triton import triton
from tests.proxy.rigs.pytest_rigs import not_run

from .corpus_entries import MODEL, Files, texts, write_files
from .files import FILES
from .test_entries_contents import COMPARED, NAMED, PROBABLE, VINO
from .test_entries_corpus import LOAD_SECONDS, OPTIONS, load
from .test_entries_rules import ENSEMBLE, FIL, FOREST, ONNX, TORCH

BATCHES = """\
backend: "python" max_batch_size: 4 default_model_filename: "model.py"
input { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }
input { name: "TEXT" data_type: TYPE_STRING dims: [ 2 ] optional: true }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" reshape { shape: [ 2, 2 ] } }
instance_group { count: 1 kind: KIND_CPU }
version_policy { latest { num_versions: 1 } }
parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "yes" } }
dynamic_batching {
  preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 10 priority_levels: 2 default_priority_level: 1
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }
}
batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP32 source_input: "IN" }
batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "OUT" source_input: "IN" }
model_warmup { name: "w" batch_size: 1
  inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 zero_data: true } }
  inputs { key: "TEXT" value { data_type: TYPE_STRING dims: 2 input_data_file: "t" } }
}
"""
SEQUENCES = """\
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
sequence_batching {
  max_sequence_idle_microseconds: 100 oldest { max_candidate_sequences: 2 }
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: 4
    initial_state { name: "z" data_type: TYPE_FP32 dims: 4 data_file: "s" } }
}
"""
SLOTS = SEQUENCES.replace("oldest { max_candidate_sequences: 2 }", "direct { minimum_slot_utilization: 1 }")
PYTHON: Files = {"1/model.py": MODEL, "labels.txt": "a\nb\n", "warmup/t": texts("a", "b"), "initial_state/s": "0" * 16}
RIGHT: dict[str, tuple[str, Files]] = {
    "batches": (BATCHES, PYTHON),
    "sequences": (SEQUENCES, PYTHON),
    "slots": (SLOTS, PYTHON),
    "fil": (FIL, FOREST),
    "onnx": (ONNX, {}),
    "torch": (TORCH, {"1/model.pt": FILES / "script.pt"}),
    "openvino": (VINO + NAMED + PROBABLE, COMPARED),
    "ensemble": (ENSEMBLE, {"1/.keep": ""}),
}
HARMLESS = {
    "fil": ("max_batch_size: 9", "threshold.string_value: '../0.5'", ".backend: None", ".platform: "),
    "torch": (".platform: ", ".max_batch_size: ", ".data_type: ", ".dims: ", "../", "__0x"),  # not in the file
    "openvino": (".backend: ", ".platform: ", "max_batch_size: 9", ".data_type: ", "[-1]", ".input: []", ".output: []"),
    "ensemble": (),
    "onnx": (".platform: ", ".input: []", ".output: []"),  # Triton infers them from the file
}
"""Changes after which the entry is still valid, or is another valid model."""


def mutations(message: Any, path: str = "") -> Iterator[tuple[str, Any, Any, list[Any]]]:
    """Yield every field, or key, with its message, its descriptor, and other values. An unset flag or text is set."""
    for field, value in message.ListFields():
        place = f"{path}.{field.name}"
        if field.is_repeated and not hasattr(value, "items"):
            yield place, message, field, [[*value][:-1], [*value, value[-1]]]
            if field.message_type is None:
                yield place, message, field, [[each, *value[1:]] for each in _others(field, value[0])]
            else:
                for each in value:
                    yield from mutations(each, place)
        elif hasattr(value, "items"):
            for key in value:
                yield f"{place}.{key}", value, key, [None]
                if field.message_type.fields_by_name["value"].message_type is not None:
                    yield from mutations(value[key], f"{place}.{key}")
        elif field.message_type is not None:
            yield place, message, field, [None]
            yield from mutations(value, place)
        else:
            yield place, message, field, [None, *_others(field, value)]
    for field in message.DESCRIPTOR.fields:
        new: Any = {field.CPPTYPE_BOOL: True, field.CPPTYPE_STRING: "1"}.get(field.cpp_type)
        if new is not None and not getattr(message, field.name):
            yield f"{path}.{field.name}", message, field, [[new] if field.is_repeated else new]


UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)


def _others(field: Any, value: Any) -> list[Any]:
    if field.enum_type is not None:
        return [each for each in field.enum_type.values_by_number if each != value][:4]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return ["", f"{value}x", f"../{value}"]
    return [each for each in (0, value + 1, *([] if field.cpp_type in UNSIGNED else [-1])) if each != value]


def mutated(config: str) -> Iterator[tuple[str, str]]:
    for number, (_, _, _, values) in enumerate(mutations(parse_config(config))):
        for value in values:
            made = parse_config(config)
            path, message, field, _ = [*mutations(made)][number]
            if isinstance(field, str):
                del message[field]
            else:
                message.ClearField(field.name)
            if isinstance(value, list):
                getattr(message, field.name).extend(value)
            elif value is not None:
                setattr(message, field.name, value)
            yield f"{path}: {value!r}".replace("\n", " "), config_text(made)


def written(name: str, folder: Path, files: Files) -> Iterator[tuple[str, list[Finding]]]:
    for number, (what, text) in enumerate(mutated(RIGHT[name][0])):
        own = write_files(folder / f"{name}{number}", {"config.pbtxt": text, **RIGHT[name][1], **files})
        yield what, check_entry(own, gpus=0, backends={"python", "fil", "onnxruntime", "pytorch", "openvino"})


@pytest.mark.parametrize("name", HARMLESS)
def test_a_change_to_an_entry_of_another_backend_is_noticed_unless_it_is_right_too(name: str, tmp_path: Path) -> None:
    tensors = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [4]) for each in ("IN", "OUT")]
    graph = helper.make_graph([helper.make_node("Neg", ["IN"], ["OUT"])], "g", tensors[:1], tensors[1:])
    files: Files = {"1/model.onnx": helper.make_model(graph).SerializeToString()} if name == "onnx" else {}
    lost = [what for what, found in written(name, tmp_path, files) if not found]
    assert [each for each in lost if not any(part in each for part in (*HARMLESS[name], ".optional: True"))] == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", RIGHT.keys() - HARMLESS.keys())
def test_a_real_triton_accepts_each_mutation_that_the_check_accepts(name: str, tmp_path: Path) -> None:
    models = tmp_path / "models"
    silent = {number: what for number, (what, found) in enumerate(written(name, models, {})) if not errors(found)}
    assert silent
    with (
        not_run("A REAL TRITON"),
        triton(tmp_path / "triton", models, options=OPTIONS) as server,
        grpc.InferenceServerClient(server.grpc) as client,
        ThreadPoolExecutor(3) as loading,
    ):
        output = loading.map(lambda number: load(client, f"{name}{number}", LOAD_SECONDS), silent)
        refused = {what: refusal for what, refusal in zip(silent.values(), output, strict=True) if refusal}
    assert refused == {}
