import json
import os
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks import fil, onnx, openvino, python, torch
from tidegate.triton.entries.frameworks.fil import UbjsonError, read_ubjson
from tidegate.triton.entries.frameworks.reading import Reading, Tensor
from tidegate.triton.entries.text import config_text

from tests.client.triton.entries.corpus_entries import write_files
from tests.client.triton.entries.files import FILES

Reader = Callable[[Path], Reading]
SERVED = "class TritonPythonModel:\n    def execute(self, requests): return []\n"
IDS, IMAGE = Tensor("ids", "INT64", (-1, -1)), Tensor("image", "FP32", (-1, 3))
SCORE, TEXT = Tensor("score", "FP32", (-1,)), Tensor("text", "STRING", (-1, -1))
VINO = (Tensor("a_name", "FP32", (-1, 3)),), (Tensor("probabilities", "FP32", (-1, 2)),)


def test_tensors_are_read_and_files_are_copied() -> None:
    reading = openvino.read(FILES / "openvino.xml")
    assert (reading.inputs, reading.outputs) == VINO  # the first of several names
    assert [below for below, _ in reading.files] == ["model.xml", "model.bin"]


@pytest.mark.parametrize(
    ("read", "name", "words", "contents"),
    [
        (onnx.read, "m.onnx", "not a readable ONNX model", [b"", b"not a protobuf at all", b"\xff" * 64]),
        (torch.read_script, "m.pt", "not a readable TorchScript archive", [(FILES / "script.pt").read_bytes()[:-40]]),
    ],
)
def test_files_of_another_format_are_refused(
    tmp_path: Path, read: Reader, name: str, words: str, contents: list[bytes]
) -> None:
    for content in contents:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=words):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (' names="a_name,x"', "", "set_names"),
        ('precision="FP32" names="a_name,x"', 'precision="U4" names="a_name,x"', "'U4'"),
        ('<?xml version="1.0"?>', '<!DOCTYPE net [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>', "DOCTYPE"),
        ('<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE net>', "DOCTYPE"),
        ('<?xml version="1.0"?>', '<?xml version="1.0" encoding="none"?>', "not a readable OpenVINO model"),
        ("</net>", "", "not a readable OpenVINO model"),
        ("<dim>-1</dim>", "<dim>many</dim>", "not a readable OpenVINO model"),
        ('type="Result"', 'type="Other"', "not a readable OpenVINO model"),
        ("", "", r"copy m\.bin next to it"),
    ],
    ids=["no-name", "type", "entities", "utf-16", "encoding", "cut", "dim", "no-result", "no-weights"],
)
def test_files_that_openvino_never_writes_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = (FILES / "openvino.xml").read_text()
    assert old in text
    (tmp_path / "m.xml").write_text(text.replace(old, new), "utf-16" if "UTF-16" in new else "utf-8")
    if old:
        shutil.copyfile(FILES / "openvino.bin", tmp_path / "m.bin")
    with pytest.raises(UsageError, match=words):
        openvino.read(tmp_path / "m.xml")


def test_torchscript_without_its_source_only_lacks_names_and_weights_are_no_inputs(tmp_path: Path) -> None:
    with zipfile.ZipFile(FILES / "script.pt") as whole, zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        for each in whole.infolist():
            archive.writestr(each, b"def broken(" if each.filename.endswith(".py") else whole.read(each))
    assert "forward takes" not in torch.read_script(tmp_path / "m.pt").missing
    with pytest.raises(UsageError, match=r"torch\.jit\.script"):
        torch.read_script(FILES / "weights.pt")


COMPLETING = SERVED + "    @staticmethod\n    def auto_complete_config(config): return config\n"
SCRIPTED = ("forward takes image, mask, and returns Tuple[Tensor, Tensor]", "pytorch_libtorch")


@pytest.mark.parametrize(
    ("read", "source", "files", "names", "expected"),
    [
        (torch.read_script, FILES / "script.pt", {}, ["model.pt"], SCRIPTED),
        (torch.read_script, FILES / "traced.pt", {}, ["model.pt"], SCRIPTED),
        (python.read, "", {"model.py": SERVED}, ["model.py"], ["cannot be read from it"]),
        (python.read, "", {"model.py": COMPLETING}, ["model.py"], ["(auto_complete_config)"]),
    ],
)
def test_the_files_of_a_framework_contain_this(
    tmp_path: Path, read: Reader, source: str | Path, files: dict[str, str], names: list[str], expected: list[str]
) -> None:
    reading = read(write_files(tmp_path, files) / source)
    text = f"{config_text(reading.config)}\n{reading.missing}\n{reading.notes}"
    assert [below for below, _ in reading.files] == names
    assert [each for each in expected if each not in text] == [], text
    assert bool(reading.missing) is not (COMPLETING in files.values())


def test_all_files_next_to_a_program_are_copied_except_leftovers(tmp_path: Path) -> None:
    for name in ("model.py", "lib/part.py", "__pycache__/model.pyc", ".git/HEAD", "lib/__pycache__/p.pyc", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "linked").symlink_to(tmp_path / "model.py")
    assert [below for below, _ in python.files_of(tmp_path)] == [".hidden", "lib/part.py", "linked", "model.py"]
    assert python.files_of(tmp_path / "model.py") == (("model.py", tmp_path / "model.py"),)


def test_files_that_cannot_be_copied_are_refused(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    for to in (tmp_path, "nothing", None):
        os.mkfifo(odd) if to is None else odd.symlink_to(to)
        with pytest.raises(UsageError, match=r"odd: not a file"):
            python.files_of(tmp_path)
        odd.unlink()


FORESTS: tuple[tuple[str, Reader, str, str, bool, int], ...] = (
    ("xgboost_multi.json", fil.read_xgboost_json, "xgboost_json", "xgboost.json", True, 3),
    ("xgboost_binary.json", fil.read_xgboost_json, "xgboost_json", "xgboost.json", True, 1),
    ("xgboost_multi.ubj", fil.read_xgboost_ubjson, "xgboost_ubj", "xgboost.ubj", True, 3),
    ("xgboost_regression.ubj", fil.read_xgboost_ubjson, "xgboost_ubj", "xgboost.ubj", False, 1),
    ("lightgbm_multi.txt", fil.read_lightgbm, "lightgbm", "model.txt", True, 3),
    ("lightgbm_regression.txt", fil.read_lightgbm, "lightgbm", "model.txt", False, 1),
    ("treelite_forest.tl", fil.read_treelite, "treelite_checkpoint", "checkpoint.tl", True, 3),
)


@pytest.mark.parametrize(
    ("name", "read", "kind", "file", "classifier", "classes"), FORESTS, ids=[case[0] for case in FORESTS]
)
def test_features_and_classes_of_a_forest_are_read(
    tmp_path: Path, name: str, read: Reader, kind: str, file: str, classifier: bool, classes: int
) -> None:
    reading = read(FILES / name)
    assert reading.inputs == (Tensor("input__0", "FP32", (4,)),)
    assert reading.outputs == (Tensor("output__0", "FP32", (classes,)),)
    message = {key: value.string_value for key, value in reading.config.parameters.items()}
    assert message["model_type"] == kind
    assert message["is_classifier"] == message["output_class"] == ("true" if classifier else "false")
    assert ("threshold" in message) is classifier  # FIL refuses a classifier without one
    assert reading.config.max_batch_size == 32768
    assert reading.config.HasField("dynamic_batching")
    assert reading.files == ((file, FILES / name),)
    (tmp_path / name).write_bytes((FILES / name).read_bytes()[:40])
    with pytest.raises(UsageError):
        read(tmp_path / name)


def test_several_targets_are_refused(tmp_path: Path) -> None:
    model = json.loads((FILES / "xgboost_multi.json").read_text())
    model["learner"]["learner_model_param"]["num_target"] = "2"
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(UsageError, match="2 targets"):
        fil.read_xgboost_json(tmp_path / "m.json")


def test_ubjson_of_every_kind_is_read_and_arrays_are_passed_over() -> None:
    every: dict[str, Any] = {"z": None, "t": True, "f": False, "u": 7, "i": -1, "c": "!", "s": "é", "a": {}}
    content = b"{U\x01zZU\x01tTU\x01fFU\x01uU\x07U\x01ii\xffU\x01cC!U\x01sSU\x02\xc3\xa9U\x01a[N[T]SU\x01x]}"
    assert read_ubjson(content, dict.fromkeys(every)) == every
    assert read_ubjson(b"{#U\x02U\x01aI\x01\x00U\x01bd\x3f\x80\x00\x00", {"a": None, "b": None}) == {"a": 256, "b": 1.0}
    assert read_ubjson(b"{U\x01a[$U#U\x03abcU\x01bT}", {"b": None}) == {"b": True}


@given(st.binary(max_size=200))
def test_no_bytes_bring_the_reader_of_ubjson_down(content: bytes) -> None:
    for start in (b"", b"{", b"[", b"{U\x01a[$"):
        with suppress(UbjsonError):
            read_ubjson(start + content, {"a": None})
