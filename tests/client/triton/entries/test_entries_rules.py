"""Rules from Triton's source that the test's Triton cannot confirm, because it has only the Python backend. The rows
follow fil_backend, pytorch_backend and onnxruntime_backend. Each valid entry has rows that change one thing."""

from pathlib import Path

import pytest
from tidegate.findings import errors
from tidegate.triton.entries.checks import check_entry

from .corpus_entries import CONFIG, MODEL, TENSORS, Files, entry
from .files import FILES

FIL = """\
backend: "fil" max_batch_size: 8
input { name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "model_type" value { string_value: "xgboost_json" } }
parameters { key: "is_classifier" value { string_value: "true" } }
parameters { key: "threshold" value { string_value: "0.5" } }
"""
FOREST: Files = {"1/xgboost.json": FILES / "xgboost_multi.json"}
TORCH = """\
platform: "pytorch_libtorch" max_batch_size: 8
input [ { name: "A__0" data_type: TYPE_FP32 dims: 3 }, { name: "B__1" data_type: TYPE_FP32 dims: 3 } ]
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 2 }
"""
SCRIPT: Files = {"1/model.pt": ""}
ONNX = f'platform: "onnxruntime_onnx"\n{TENSORS}'
ONNX_FILE: Files = {"1/model.onnx": ""}
RTLLM = f'backend: "tensorrtllm"\n{TENSORS}'
ENGINE = """\
platform: "tensorrt_plan"
input { name: "IN" data_type: TYPE_FP32 dims: [ 4, 4, 4 ] is_non_linear_format_io: true }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] is_shape_tensor: true }
instance_group { kind: KIND_GPU gpus: 0 profile: "1" }
model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { buckets: 1 } } }
model_repository_agents { agents { name: "checksum"
  parameters { key: "MD5:1/model.plan" value: "d41d8cd98f00b204e9800998ecf8427e" }
} }
"""
ENGINE_FILE: Files = {"1/model.plan": ""}
PREDICT_PROBA = 'parameters { key: "predict_proba" value { string_value: "true" } }\n'


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


REFUSED: dict[str, tuple[str, Files, str, str]] = {
    "FIL's input by another name": (FIL, FOREST, '"input__0"', '"INPUT0"'),
    "FIL's output by another name": (FIL, FOREST, '"output__0"', '"OUTPUT0"'),
    "FIL's input of another type": (FIL, FOREST, "TYPE_FP32 dims: [ 4 ]", "TYPE_INT16 dims: [ 4 ]"),
    "FIL's output of another type": (FIL, FOREST, "TYPE_FP32 dims: [ 1 ]", "TYPE_INT64 dims: [ 1 ]"),
    "FIL's input of two dims": (FIL, FOREST, "[ 4 ]", "[ 1, 4 ]"),
    "FIL's output of two dims": (FIL, FOREST, "dims: [ 1 ]", "dims: [ 1, 1 ]"),
    "FIL's output of another size": (FIL, FOREST, "dims: [ 1 ]", "dims: [ 3 ]"),
    "FIL's probabilities in one number": (FIL, FOREST, 'backend: "fil"', PREDICT_PROBA + 'backend: "fil"'),
    "FIL's model of an unknown type": (FIL, FOREST, "xgboost_json", "xgboost_bin"),
    "FIL's file of another type than the default": (FIL, FOREST, parameter("model_type", "xgboost_json"), ""),
    "FIL's flag of another form": (FIL, FOREST, '"true"', '"yes"'),
    "FIL's threshold that is no number": (FIL, FOREST, '"0.5"', '"half"'),
    "FIL's classifier without a threshold": (FIL, FOREST, parameter("threshold", "0.5"), ""),
    "FIL's model that may be a classifier": (FIL, FOREST, parameter("is_classifier", "true"), ""),
    "TorchScript's inputs with a gap": (TORCH, SCRIPT, "B__1", "B__2"),
    "TorchScript's inputs with one number": (TORCH, SCRIPT, "B__1", "B__0"),
    "TorchScript's input of no type of PyTorch": (TORCH, SCRIPT, "TYPE_FP32 dims: 3 } ]", "TYPE_UINT32 dims: 3 } ]"),
    "TorchScript's texts with batches": (TORCH, SCRIPT, "TYPE_FP32 dims: 2", "TYPE_STRING dims: 2"),
    "TorchScript without outputs": (TORCH, SCRIPT, TORCH.splitlines()[2], ""),
    "PyTorch's flag of another form": (TORCH, SCRIPT, "platform", parameter("INFERENCE_MODE", "maybe") + "platform"),
    "PyTorch's threads that are no number": (
        TORCH, SCRIPT, "platform", parameter("INTRA_OP_THREAD_COUNT", "n") + "platform",
    ),
    "TorchScript's state without a number": (
        TORCH, SCRIPT, "platform",
        'sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: 1 } } platform',
    ),
    "ONNX Runtime's mode that it does not have": (
        ONNX, ONNX_FILE, "platform", parameter("execution_mode", "2") + "platform",
    ),
    "ONNX Runtime's threads that are no number": (
        ONNX, ONNX_FILE, "platform", parameter("intra_op_thread_count", "all") + "platform",
    ),
    "a template for a number": (ONNX, ONNX_FILE, "platform", "max_batch_size: ${size}\nplatform"),
    "a template for a path": (RTLLM, {"1/x": ""}, "backend", parameter("engine_dir", "${engine_dir}") + "backend"),
    "an engine that is not in the entry": (
        RTLLM, {"1/x": ""}, "backend", parameter("engine_dir", "/models/m/2") + "backend",
    ),
    "an engine by a path of the server's own folder": (
        RTLLM, {"1/x": ""}, "backend", parameter("gpt_model_path", "engines/x") + "backend",
    ),
    "TensorRT's profile that is no number": (ENGINE, ENGINE_FILE, '"1"', '"best"'),
    "TensorRT's profile below 0": (ENGINE, ENGINE_FILE, '"1"', '"-1"'),
    "TensorRT's non-linear format of two dims": (ENGINE, ENGINE_FILE, "4, 4, 4", "4, 4"),
    "a metric of no family": (ENGINE, ENGINE_FILE, 'family: "f"', ""),
    "a metric without buckets": (ENGINE, ENGINE_FILE, "buckets: 1", ""),
    "a GPU that no server has": (ENGINE, ENGINE_FILE, "gpus: 0", "gpus: -1"),
    "a checksum of another file": (ENGINE, ENGINE_FILE, "d41d", "d41e"),
    "a checksum of a file that is not there": (ENGINE, ENGINE_FILE, "1/model", "1/other"),
    "a checksum of an unknown kind": (ENGINE, ENGINE_FILE, "MD5:", "SHA256:"),
    "a checksum of no kind": (ENGINE, ENGINE_FILE, "MD5:", ""),
    "a model for a GPU that is not there": (
        'platform: "tensorrt_plan"\n' + TENSORS, ENGINE_FILE, "platform",
        'cc_model_filenames { key: "9.0" value: "h100.plan" } default_model_filename: "model.plan" platform',
    ),
}  # fmt: skip
"""A valid entry, and changes that make a server refuse it."""


@pytest.mark.parametrize("name", REFUSED)
def test_tritons_rules_are_errors_and_the_valid_entry_has_none(name: str, tmp_path: Path) -> None:
    config, files, right, wrong = REFUSED[name]
    assert config.count(right) == 1 or right == "platform" or right == "backend"
    assert check_entry(entry(tmp_path / "right", config, files)) == []
    found = errors(check_entry(entry(tmp_path / "wrong", config.replace(right, wrong, 1), files)))
    assert found
    assert all(each.where.startswith(("config.pbtxt:", "1")) for each in found)
    if "template" in name:
        assert "${" in str(found[0])


ENSEMBLE = (
    'platform: "ensemble"\ninput { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    'output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }\nensemble_scheduling { max_inflight_requests: 4 '
    'step { model_name: "s" model_version: -1 input_map { key: "IN" value: "IN" } '
    'output_map { key: "OUT" value: "OUT" } } }\n'
)
RELEASES: tuple[tuple[str, Files, str, str], ...] = (
    (ENSEMBLE, {"1/.keep": ""}, "25.10", "25.11"),
    (f"{CONFIG}model_metrics {{ }}\n", {"1/model.py": MODEL}, "24.11", "24.12"),
    (f'platform: "torch_aoti"\n{TENSORS}', {"1/model.pt2": ""}, "26.04", "26.05"),
    (FIL, FOREST, "25.08", "25.09"),
)


@pytest.mark.parametrize(("config", "files", "before", "since"), RELEASES)
def test_a_field_that_a_release_lacks_is_an_error_for_that_release_only(
    config: str, files: Files, before: str, since: str, tmp_path: Path
) -> None:
    own = entry(tmp_path, config, files)
    assert errors(check_entry(own, release=before))
    for release in (since, "26.08", None, "nightly"):
        assert not errors(check_entry(own, release=release))


@pytest.mark.parametrize(
    ("names", "right"),
    [(("A__0", "B__1"), True), (("B__1", "A__0"), True), (("image", "mask"), True), (("A__0", "mask"), False)],
)
def test_inputs_of_torchscript_go_by_number_or_all_by_their_order(
    names: tuple[str, str], right: bool, tmp_path: Path
) -> None:
    first, _, rest = TORCH.partition("A__0")
    config = f"{first}{names[0]}{rest.replace('B__1', names[1])}"
    found = check_entry(entry(tmp_path, config, SCRIPT))
    assert not errors(found)
    assert bool(found) is not right


OPENVINO, PLAN = ('backend: "openvino"', "1/model.xml"), ('platform: "tensorrt_plan"', "1/model.plan")
ONNX_HERE = ('platform: "onnxruntime_onnx"', "1/model.onnx")
MANY = parameter("enable_multi_device", "true")


@pytest.mark.parametrize(
    ("model", "group", "gpus", "refused"),
    [
        (OPENVINO, "kind: KIND_CPU", 1, False),
        (OPENVINO, "kind: KIND_GPU", None, True),
        (OPENVINO, "kind: KIND_MODEL", None, True),
        (OPENVINO, "count: 2", None, False),
        (OPENVINO, "count: 2", 0, False),
        (OPENVINO, "count: 2", 1, True),
        (PLAN, "kind: KIND_GPU", 1, False),
        (PLAN, "kind: KIND_CPU", None, True),
        (PLAN, "kind: KIND_MODEL", None, True),
        (PLAN, "kind: KIND_MODEL } " + MANY + "instance_group { kind: KIND_MODEL", None, False),
        (PLAN, "count: 2", None, False),
        (PLAN, "count: 2", 0, True),
        (PLAN, "count: 2", 1, False),
        *((ONNX_HERE, f"kind: {kind}", 1, False) for kind in ("KIND_CPU", "KIND_GPU", "KIND_MODEL", "KIND_AUTO")),
    ],
)
def test_openvino_accepts_only_instances_on_cpus_and_tensorrt_only_on_gpus(
    model: tuple[str, str], group: str, gpus: int | None, refused: bool, tmp_path: Path
) -> None:
    """The default `kind: KIND_AUTO` depends on the server."""
    own = entry(tmp_path, f"{model[0]}\n{TENSORS}instance_group {{ {group} }}\n", {model[1]: ""})
    found = errors(check_entry(own, gpus=gpus))
    assert bool(found) is refused
    assert all("backend refuses KIND_" in each.what for each in found)


@pytest.mark.parametrize(("arguments", "right"), [('{"model": "x"}', True), ("{model: x}", False), ("[]", False)])
def test_the_arguments_of_vllm_are_a_json_object(arguments: str, right: bool, tmp_path: Path) -> None:
    found = errors(check_entry(entry(tmp_path, 'backend: "vllm"', {"1/model.json": arguments})))
    assert [each.where for each in found] == ([] if right else ["1/model.json"])
