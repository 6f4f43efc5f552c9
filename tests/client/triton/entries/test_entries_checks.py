"""What a check says where the test's Triton has no word: other backends, other servers, newer and stricter ones."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidegate.findings import Severity, errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.entry import read_entry

from tests.counts import examples

from .corpus_entries import CONFIG, CORPUS, MODEL, TENSORS, Files, entry

FIL = 'backend: "fil" parameters { key: "model_type" value { string_value: "%s" } }'
EVERYTHING = (CORPUS / "elsewhere" / "everything.pbtxt").read_text("utf-8")


def said(folder: Path, config: str, files: Files | None = None) -> list[str]:
    return [str(finding) for finding in check_entry(entry(folder, config, files))]


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ('platform: "onnxruntime_onnx"', "model.onnx"),
        ('backend: "onnxruntime"', "model.onnx/model.onnx"),
        ('platform: "tensorrt_plan"', "model.plan"),
        ('platform: "tensorflow_graphdef"', "model.graphdef"),
        ('platform: "tensorflow_savedmodel"', "model.savedmodel/saved_model.pb"),
        ('platform: "pytorch_libtorch"', "model.pt"),
        ('backend: "pytorch"', "model.pt"),
        ('platform: "torch_aoti"', "model.pt2"),
        ('backend: "openvino"', "model.xml"),
        ('backend: "vllm"', "model.json"),
        ('backend: "dali"', "model.dali"),
        (FIL % "xgboost_json", "xgboost.json"),
        (FIL % "lightgbm", "model.txt"),
        (FIL % "treelite_checkpoint", "checkpoint.tl"),
        ('backend: "onnxruntime" default_model_filename: "deep/other.onnx"', "deep/other.onnx"),
    ],
)  # fmt: skip
def test_each_backend_finds_its_file_or_it_is_an_error(tmp_path: Path, config: str, file: str) -> None:
    assert said(tmp_path / "with", f"{config}\n{TENSORS}", {f"1/{file}": ""}) == []
    (finding,) = check_entry(entry(tmp_path / "without", f"{config}\n{TENSORS}", {"1/weights.bin": ""}))
    assert finding.severity is Severity.ERROR
    assert file.split("/model.onnx")[0].removesuffix("/saved_model.pb") in finding.what
    assert finding.where == "1"
    if file.startswith("model.savedmodel"):  # which is a folder
        assert len(said(tmp_path / "file", f"{config}\n{TENSORS}", {"1/model.savedmodel": ""})) == 1


@pytest.mark.parametrize(
    ("file", "backend"),
    [("model.onnx", "onnxruntime"), ("model.plan", "tensorrt"), ("model.pt", "pytorch"), ("model.xml", "openvino"),
     ("model.graphdef", "tensorflow"), ("model.savedmodel/saved_model.pb", "tensorflow"), ("model.py", "python")],
)  # fmt: skip
def test_a_file_tells_the_backend_where_nothing_is_said(tmp_path: Path, file: str, backend: str) -> None:
    own = entry(tmp_path, TENSORS, {f"1/{file}": MODEL if file.endswith(".py") else ""})
    assert check_entry(own, backends={backend}) == []
    (finding,) = check_entry(own, backends={"fil"})
    assert f"no backend '{backend}'" in finding.what


COMPLETING = f"{MODEL}\n    @staticmethod\n    def auto_complete_config(config): return config\n"
ARCHITECTURES = 'platform: "tensorrt_plan" cc_model_filenames { key: "9.0" value: "h100.plan" }\n'
VERSIONS = f"{CONFIG}version_policy {{ specific {{ versions: [ 3, 7 ] }} }}\n"
PUBLISHED = {f"{version}/{path}": "" for version in (3, 7) for path in (".entry/config.pbtxt", ".entry/labels.txt")}


@pytest.mark.parametrize(
    ("config", "files"),
    [
        (ARCHITECTURES + TENSORS, {"1/h100.plan": ""}),
        (f'backend: "own"\n{TENSORS}', {"1/libtriton_own.so": ""}),
        ('backend: "python"', {"1/model.py": COMPLETING}),
        (CONFIG, {"1/model.py": f"open('ran', 'w')\n{MODEL}"}),
        (CONFIG, {"1/model.py": f"{MODEL}\nx = {'-' * 50000}1\n"}),
        (VERSIONS, PUBLISHED | {"3/model.py": MODEL, "7/model.py": MODEL}),
    ],
    ids=["for each architecture", "a backend of its own", "completes itself", "never run", "too deep", "published"],
)
def test_what_triton_takes_is_fine(tmp_path: Path, config: str, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_entry(entry(tmp_path, config, files), backends={"python", "tensorrt"}) == []
    assert not (tmp_path / "ran").exists()


def test_a_slip_in_the_backend_is_told_the_nearest_that_the_server_has(tmp_path: Path) -> None:
    own = entry(tmp_path, f'backend: "onnx"\n{TENSORS}', {"1/model.onnx": ""})
    (finding,) = check_entry(own, backends={"onnxruntime", "python"})
    assert "did you mean 'onnxruntime'?" in finding.do
    assert "onnxruntime, python" in finding.why
    (finding,) = check_entry(entry(tmp_path, f'backend: "pytohn"\n{TENSORS}', name="n"))
    assert (finding.severity, finding.do) == (Severity.WARNING, "did you mean 'python'?")


def test_a_model_for_gpus_is_an_error_only_for_a_server_without(tmp_path: Path) -> None:
    own = entry(tmp_path, f"{CONFIG}instance_group {{ kind: KIND_GPU }}\n")
    assert check_entry(own) == check_entry(own, gpu=True) == []
    assert len(errors(check_entry(own, gpu=False))) == 1
    (finding,) = check_entry(entry(tmp_path, f"{CONFIG}instance_group {{ gpus: [ 0, 1 ] }}\n", name="second"))
    assert "gpus: [0, 1]" in finding.what


@pytest.mark.parametrize("path", ["../other/labels.txt", "/etc/passwd", "a//b"])
def test_files_outside_of_the_entry_are_refused_though_old_tritons_read_them(tmp_path: Path, path: str) -> None:
    """Triton 2.51 reads them; newer ones refuse labels that climb out (triton-inference-server/core, model.cc)."""
    for number, config in enumerate(
        [
            CONFIG.replace('name: "OUT"', f'name: "OUT" label_filename: "{path}"'),
            f'{CONFIG}default_model_filename: "{path}"\n',
        ]
    ):
        (finding,) = errors(check_entry(entry(tmp_path, config, name=f"m{number}")))
        assert "outside" in finding.what


def test_accelerators_that_a_backend_does_not_have_are_a_warning(tmp_path: Path) -> None:
    config = (
        f'backend: "onnxruntime"\n{TENSORS}optimization {{ execution_accelerators {{\n'
        'gpu_execution_accelerator : [ {\nname : "onnxruntime" } ]\n'
        'cpu_execution_accelerator : [ {\n name : "openvin" } ] } }\n'
    )
    first, second = check_entry(entry(tmp_path, config, {"1/model.onnx": ""}))
    assert "no accelerator 'onnxruntime'" in first.what
    assert "did you mean 'openvino'?" in second.do


def test_the_environment_of_a_python_model_lies_in_the_entry(tmp_path: Path) -> None:
    config = CONFIG + 'parameters {\n key: "EXECUTION_ENV_PATH"\n value { string_value: "%s" } }\n'
    inside = config % "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    assert said(tmp_path / "a", inside, {"1/model.py": MODEL, "env.tar.gz": ""}) == []
    (finding,) = check_entry(entry(tmp_path / "b", inside))
    assert (finding.severity, finding.where) == (Severity.ERROR, "config.pbtxt:6")
    (finding,) = check_entry(entry(tmp_path / "c", config % "/opt/env"))
    assert finding.severity is Severity.WARNING


def test_the_policy_says_which_versions_must_have_their_file(tmp_path: Path) -> None:
    files = {"1/weights": "", "2/model.py": MODEL}
    for number, (policy, wrong) in enumerate(
        [("", []), ("latest { num_versions: 2 }", ["1"]), ("all { }", ["1"]), ("specific { versions: 1 }", ["1"]),
         ("specific { versions: 2 }", [])]
    ):  # fmt: skip
        config = f"{CONFIG}version_policy {{ {policy} }}" if policy else CONFIG
        own = entry(tmp_path, config, files, name=f"m{number}")
        assert [finding.where for finding in errors(check_entry(own))] == wrong, policy


def test_a_second_config_and_a_hopeless_name_are_said(tmp_path: Path) -> None:
    own = entry(tmp_path, CONFIG, {"1/model.py": MODEL, "config-gpu.pbtxt": ""})
    (finding,) = check_entry(own)
    assert finding.where == "config-gpu.pbtxt"
    (finding,) = errors(check_entry(read_entry(own, "../m")))
    assert "no name for a model" in finding.what


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


NO_VALUES = [("TYPE_FP32", "99"), ("TYPE_INT64", "99"), ("KIND_CPU", "99"), ("CONTROL_SEQUENCE_START", "99"),
             ("FORMAT_NCHW", "99"), ("BATCH_ACCUMULATED_ELEMENT_COUNT", "99"), ("DELAY", "99")]  # fmt: skip
LINES = sorted({line for file in CORPUS.glob("*/*.pbtxt") for line in file.read_text("utf-8").splitlines() if line})
