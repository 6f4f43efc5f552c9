"""Forests of trees, as XGBoost, LightGBM and treelite wrote them."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks import ubjson
from tidegate.triton.entries.frameworks.fil import read_lightgbm, read_treelite, read_xgboost_json, read_xgboost_ubjson
from tidegate.triton.entries.frameworks.reading import Reading, Tensor

from tests.client.triton.entries.files import FILES

CASES: tuple[tuple[str, Callable[[Path], Reading], str, str, bool, int], ...] = (
    ("xgboost_multi.json", read_xgboost_json, "xgboost_json", "xgboost.json", True, 3),
    ("xgboost_binary.json", read_xgboost_json, "xgboost_json", "xgboost.json", True, 1),
    ("xgboost_multi.ubj", read_xgboost_ubjson, "xgboost_ubj", "xgboost.ubj", True, 3),
    ("xgboost_regression.ubj", read_xgboost_ubjson, "xgboost_ubj", "xgboost.ubj", False, 1),
    ("lightgbm_multi.txt", read_lightgbm, "lightgbm", "model.txt", True, 3),
    ("lightgbm_regression.txt", read_lightgbm, "lightgbm", "model.txt", False, 1),
    ("treelite_forest.tl", read_treelite, "treelite_checkpoint", "checkpoint.tl", True, 3),
)


@pytest.mark.parametrize(
    ("name", "read", "kind", "file", "classifier", "classes"), CASES, ids=[case[0] for case in CASES]
)
def test_features_and_classes_are_read(
    name: str, read: Callable[[Path], Reading], kind: str, file: str, classifier: bool, classes: int
) -> None:
    reading = read(FILES / name)
    assert reading.inputs == (Tensor("input__0", "FP32", (4,)),)
    assert reading.outputs == (Tensor("output__0", "FP32", (classes,)),)
    said = {key: value.string_value for key, value in reading.config.parameters.items()}
    assert said["model_type"] == kind
    assert said["is_classifier"] == said["output_class"] == ("true" if classifier else "false")
    assert ("threshold" in said) is classifier  # FIL refuses a classifier without one
    assert reading.config.max_batch_size == 32768
    assert reading.config.HasField("dynamic_batching")
    assert reading.files == ((file, FILES / name),)


@pytest.mark.parametrize(("name", "read"), [(case[0], case[1]) for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_cut_short_is_refused(tmp_path: Path, name: str, read: Callable[[Path], Reading]) -> None:
    (tmp_path / name).write_bytes((FILES / name).read_bytes()[:40])
    with pytest.raises(UsageError):
        read(tmp_path / name)


def test_several_targets_are_refused(tmp_path: Path) -> None:
    model = json.loads((FILES / "xgboost_multi.json").read_text())
    model["learner"]["learner_model_param"]["num_target"] = "2"
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(UsageError, match="2 targets"):
        read_xgboost_json(tmp_path / "m.json")


def test_ubjson_and_json_of_one_model_say_the_same() -> None:
    told = json.loads((FILES / "xgboost_multi.json").read_text())["learner"]
    wanted = {key: dict.fromkeys(told[key]) for key in ("learner_model_param", "objective", "attributes")}
    wanted["objective"] = {"name": None}
    read = ubjson.read((FILES / "xgboost_multi.ubj").read_bytes(), {"learner": wanted})["learner"]
    assert read == {key: {name: told[key][name] for name in wanted[key]} for key in wanted}


def test_ubjson_of_every_kind_is_read_and_arrays_are_passed_over() -> None:
    every: dict[str, Any] = {"z": None, "t": True, "f": False, "u": 7, "i": -1, "c": "!", "s": "é", "a": {}}
    content = b"{U\x01zZU\x01tTU\x01fFU\x01uU\x07U\x01ii\xffU\x01cC!U\x01sSU\x02\xc3\xa9U\x01a[N[T]SU\x01x]}"
    assert ubjson.read(content, dict.fromkeys(every)) == every
    assert ubjson.read(b"{#U\x02U\x01aI\x01\x00U\x01bd\x3f\x80\x00\x00", {"a": None, "b": None}) == {"a": 256, "b": 1.0}
    assert ubjson.read(b"{U\x01a[$U#U\x03abcU\x01bT}", {"b": None}) == {"b": True}


@given(st.binary(max_size=200))
def test_no_bytes_bring_the_reader_of_ubjson_down(content: bytes) -> None:
    for start in (b"", b"{", b"[", b"{U\x01a[$"):
        with suppress(ubjson.UbjsonError):
            ubjson.read(start + content, {"a": None})
