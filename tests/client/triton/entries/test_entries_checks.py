"""Findings that the test's Triton cannot confirm: other backends, other servers, newer and stricter ones."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidegate.findings import Severity, errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.entry import read_entry

from tests.counts import examples

from .corpus_entries import CONFIG, CORPUS, MODEL, TENSORS, Files, entry

FIL = (
    'backend: "fil" max_batch_size: 8 parameters { key: "is_classifier" value { string_value: "false" } } '
    'parameters { key: "model_type" value { string_value: "%s" } }'
)
ROWS = TENSORS.replace("IN", "input__0").replace("OUT", "output__0")
EVERYTHING = (CORPUS / "elsewhere" / "everything.pbtxt").read_text("utf-8")


def message(folder: Path, config: str, files: Files | None = None) -> list[str]:
    return [str(finding) for finding in check_entry(entry(folder, config, files))]


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ('platform: "onnxruntime_onnx"', "model.onnx"),
        ('backend: "onnxruntime"', "model.onnx/model.onnx"),
        ('platform: "tensorrt_plan"', "model.plan"),
        ('platform: "pytorch_libtorch"', "model.pt"),
        ('backend: "pytorch"', "model.pt"),
        ('platform: "torch_aoti"', "model.pt2"),
        ('backend: "openvino"', "model.xml"),
        ('backend: "vllm"', "model.json"),
        ('backend: "dali"', "model.dali"),
        (FIL % "xgboost_json", "xgboost.json"),
        (FIL % "lightgbm", "model.txt"),
        (FIL.partition(' parameters { key: "model_type')[0], "xgboost.model"),
        (FIL % "treelite_checkpoint", "checkpoint.tl"),
        ('backend: "onnxruntime" default_model_filename: "deep/other.onnx"', "deep/other.onnx"),
    ],
)
def test_each_backend_finds_its_file_or_it_is_an_error(tmp_path: Path, config: str, file: str) -> None:
    tensors = ROWS if "fil" in config else TENSORS
    assert message(tmp_path / "with", f"{config}\n{tensors}", {f"1/{file}": "{}" if file == "model.json" else ""}) == []
    (finding,) = check_entry(entry(tmp_path / "without", f"{config}\n{tensors}", {"1/weights.bin": ""}))
    assert finding.severity is Severity.ERROR
    assert file.split("/model.onnx")[0] in finding.what
    assert finding.where == "1"


@pytest.mark.parametrize(
    ("file", "backend"),
    [
        ("model.onnx", "onnxruntime"),
        ("model.plan", "tensorrt"),
        ("model.pt", "pytorch"),
        ("model.xml", "openvino"),
        ("model.py", "python"),
    ],
)
def test_a_file_determines_the_backend_by_default(tmp_path: Path, file: str, backend: str) -> None:
    own = entry(tmp_path, TENSORS, {f"1/{file}": MODEL if file.endswith(".py") else ""})
    assert check_entry(own, backends={backend}) == []
    (finding,) = check_entry(own, backends={"fil"})
    assert f"no backend '{backend}'" in finding.what


COMPLETING = f"{MODEL}\n    @staticmethod\n    def auto_complete_config(config): return config\n"
ARCHITECTURES = 'platform: "tensorrt_plan" cc_model_filenames { key: "9.0" value: "h100.plan" }\n'
VERSIONS = f"{CONFIG}version_policy {{ specific {{ versions: [ 3, 7 ] }} }}\n"
CLIMBING = ("../other/labels.txt", "/etc/passwd", "a//b")
PUBLISHED = {f"{version}/{path}": "" for version in (3, 7) for path in (".entry/config.pbtxt", ".entry/labels.txt")}


ACCELERATED = (
    f'backend: "onnxruntime"\n{TENSORS}optimization {{ execution_accelerators {{\n'
    'gpu_execution_accelerator : [ {\nname : "onnxruntime" } ]\n'
    'cpu_execution_accelerator : [ {\n name : "openvin" } ] } }\n'
)
PACKED = CONFIG + 'parameters {\n key: "EXECUTION_ENV_PATH"\n value { string_value: "%s" } }\n'
INSIDE = PACKED % "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
HALF = {"1/weights": "", "2/model.py": MODEL}
LACKS = "1: error: model.py is missing"
FINDINGS: tuple[tuple[str, Files | None, dict[str, Any], tuple[str, ...]], ...] = (
    (ARCHITECTURES + TENSORS, {"1/h100.plan": ""}, {"backends": {"tensorrt"}}, ()),
    (f'backend: "own"\n{TENSORS}', {"1/libtriton_own.so": ""}, {"backends": {"python"}}, ()),
    ('backend: "python"', {"1/model.py": COMPLETING}, {}, ()),
    (CONFIG, {"1/model.py": f"open('ran', 'w')\n{MODEL}"}, {}, ()),
    (CONFIG, {"1/model.py": f"{MODEL}\nx = {'-' * 50000}1\n"}, {}, ()),  # nested too deeply to check
    (VERSIONS, PUBLISHED | {"3/model.py": MODEL, "7/model.py": MODEL}, {}, ()),
    (
        f'backend: "onnx"\n{TENSORS}',
        {"1/model.onnx": ""},
        {"backends": {"onnxruntime", "python"}},
        ("the server has no backend 'onnx'\n  why: it has onnxruntime, python\n  do: did you mean 'onnxruntime'?",),
    ),
    *(
        (f"{line}\n{TENSORS}", {"1/x": ""}, {"backends": backends}, ("error: Triton has had no TensorFlow",))
        for line in ('platform: "tensorflow_savedmodel"', 'backend: "tensorflow"')
        for backends in (None, {"python"})
    ),
    (f'backend: "tensorflow"\n{TENSORS}', {"1/x": ""}, {"backends": {"tensorflow"}}, ()),
    (f'backend: "tensorflow"\n{TENSORS}', {"1/libtriton_tensorflow.so": ""}, {}, ()),
    (f"{CONFIG}instance_group {{ kind: KIND_GPU }}\n", None, {}, ()),
    (f"{CONFIG}instance_group {{ kind: KIND_GPU }}\n", None, {"gpus": 1}, ()),
    (f"{CONFIG}instance_group {{ kind: KIND_GPU }}\n", None, {"gpus": 0}, ("error: KIND_GPU",)),
    *((f"{CONFIG}instance_group {{ gpus: [ 0, 1 ] }}\n", None, {"gpus": gpus}, ()) for gpus in (None, 2)),
    (f"{CONFIG}instance_group {{ gpus: [ 0, 1 ] }}\n", None, {"gpus": 1}, ("error: gpus: [0, 1]",)),
    # Triton 2.51 reads files outside. Newer ones refuse labels outside the model (core, model.cc).
    *(
        (CONFIG.replace('name: "OUT"', f'name: "OUT" label_filename: "{path}"'), None, {}, ("error: the labels",))
        for path in CLIMBING
    ),
    *((f'{CONFIG}default_model_filename: "{path}"\n', None, {}, (f"1: error: {path}",)) for path in CLIMBING),
    (ACCELERATED, {"1/model.onnx": ""}, {}, ("no accelerator 'onnxruntime'", "did you mean 'openvino'?")),
    (f'{CONFIG}model_repository_agents {{ agents {{ name: "own" }} }}', None, {}, ("warning: Triton has no repos",)),
    (INSIDE, {"1/model.py": MODEL, "env.tar.gz": ""}, {}, ()),
    (INSIDE, None, {}, ("config.pbtxt:6: error: the environment: there is no env.tar.gz",)),
    (PACKED % "/opt/env", None, {}, ("warning: the environment: /opt/env is not part",)),
    (CONFIG, HALF, {}, ("warning: there are 2 versions",)),
    *(
        (f"{CONFIG}version_policy {{ {policy} }}", HALF, {}, (LACKS, "warning: there are 2 versions"))
        for policy in ("latest { num_versions: 2 }", "all { }", "specific { versions: 1 }")
    ),
    (f"{CONFIG}version_policy {{ specific {{ versions: 2 }} }}", HALF, {}, ("warning: there are 2 versions",)),
    (CONFIG, {"1/model.py": MODEL, "config-gpu.pbtxt": ""}, {}, ("config-gpu.pbtxt: warning",)),
)


@pytest.mark.parametrize(("config", "files", "options", "expected"), FINDINGS)
def test_a_check_has_exactly_these_findings(
    tmp_path: Path,
    config: str,
    files: Files,
    options: dict[str, Any],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [str(finding) for finding in check_entry(entry(tmp_path, config, files), **options)]
    assert len(found) == len(expected), found
    assert all(words in each for words, each in zip(expected, found, strict=True)), found
    assert not (tmp_path / "ran").exists()  # a program is never run


def test_a_name_without_a_similar_one_is_refused(tmp_path: Path) -> None:
    (finding,) = errors(check_entry(read_entry(entry(tmp_path, CONFIG), "../m")))
    assert "not a valid name of a model" in finding.what


def test_findings_are_in_the_order_of_their_lines_errors_first(tmp_path: Path) -> None:
    config = CONFIG + "dynamic_batching { }\n#\nmax_batch_size: -1\n\n\n\ninstance_group { kind: KIND_CPU gpus: 1 }\n"
    found = check_entry(entry(tmp_path, config))
    assert [finding.where for finding in found] == ["config.pbtxt:6", "config.pbtxt:10", "config.pbtxt:4"]
    assert [finding.severity for finding in found] == [Severity.ERROR, Severity.ERROR, Severity.WARNING]


@settings(parent=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_configuration_breaks_a_check(tmp_path: Path, data: st.DataObject) -> None:
    """Any lines of all configurations of the corpus, with any numbers in them."""
    lines = data.draw(st.lists(st.sampled_from(LINES), max_size=4)) + EVERYTHING.splitlines()
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    text = "\n".join(line for line, keep in zip(lines, kept, strict=True) if keep)
    if data.draw(st.booleans()):
        text = text.replace(*data.draw(st.sampled_from(NO_VALUES)))
    text = text.replace("8", str(data.draw(st.sampled_from([-9, -1, 0, 1, 8, 2**31 - 1]))))
    for finding in check_entry(entry(tmp_path, text, {"1/model.onnx": ""})):
        assert finding.what
        assert finding.where


NO_VALUES = [
    (each, "99")
    for each in ("TYPE_FP32", "TYPE_INT64", "KIND_CPU", "CONTROL_SEQUENCE_START", "FORMAT_NCHW", "DELAY",
                 "BATCH_ACCUMULATED_ELEMENT_COUNT")
]  # fmt: skip
LINES = sorted({line for file in CORPUS.glob("*/*.pbtxt") for line in file.read_text("utf-8").splitlines() if line})
