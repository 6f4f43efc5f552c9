from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks.onnx import read
from tidegate.triton.entries.frameworks.reading import Tensor


def model(inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    nodes = [helper.make_node("Identity", [inputs[0].name], [each.name]) for each in outputs]
    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, stored))


def value(name: str, kind: int, dims: list[int | str | None] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def test_names_types_and_shapes_are_read_and_weights_are_no_inputs(tmp_path: Path) -> None:
    made = model(
        [value("image", TensorProto.FLOAT16, ["batch", 3, 224, None]), value("w", TensorProto.FLOAT, [2])],
        [value("scores", TensorProto.INT64, [1, 1000]), value("text", TensorProto.STRING, [0])],
        {"w": np.ones(2, np.float32)},
    )
    onnx.save(made, tmp_path / "m.onnx")
    reading = read(tmp_path / "m.onnx")
    assert reading.inputs == (Tensor("image", "FP16", (-1, 3, 224, -1)),)
    assert reading.outputs == (Tensor("scores", "INT64", (1, 1000)), Tensor("text", "STRING", (-1,)))
    assert (reading.config.backend, reading.config.platform) == ("onnxruntime", "onnxruntime_onnx")
    assert reading.files == (("model.onnx", tmp_path / "m.onnx"),)


def test_every_type_that_triton_has_is_known(tmp_path: Path) -> None:
    kinds = {
        "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16,
        "UINT32": TensorProto.UINT32, "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8,
        "INT16": TensorProto.INT16, "INT32": TensorProto.INT32, "INT64": TensorProto.INT64,
        "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
        "STRING": TensorProto.STRING, "BF16": TensorProto.BFLOAT16,
    }  # fmt: skip
    inputs = [value(name, kind, [1]) for name, kind in kinds.items()]
    onnx.save(model(inputs, [value("y", 1, [1])]), tmp_path / "m.onnx")
    found = read(tmp_path / "m.onnx").inputs
    assert [(each.name, each.data_type) for each in found] == [(name, name) for name in kinds]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (value("x", TensorProto.COMPLEX64, [1]), "a type that Triton does not have"),
        (value("x", TensorProto.FLOAT, None), "unknown rank"),
        (helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]), "'x' is a sequence"),
    ],
    ids=["type", "rank", "sequence"],
)
def test_tensors_that_triton_cannot_pass_are_refused(tmp_path: Path, bad: Any, message: str) -> None:
    onnx.save(model([bad], [value("y", TensorProto.FLOAT, [1])]), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "m.onnx")


def test_a_classifiers_zipmap_is_refused_with_the_option_that_leaves_it_out(tmp_path: Path) -> None:
    key = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, key))
    made = model([value("x", TensorProto.FLOAT, [1])], [helper.make_value_info("probabilities", maps)])
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"'probabilities' is a sequence, but .* ZipMap") as caught:
        read(tmp_path / "m.onnx")
    assert "options={'zipmap': False}" in caught.value.do


def outside(tmp_path: Path, location: str) -> Path:
    x, y = (value(name, TensorProto.FLOAT, [300]) for name in "xy")
    made = model([x], [y], {"w": np.ones(300, np.float32)})
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    moved = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for entry in moved.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    (tmp_path / "m.onnx").write_bytes(moved.SerializeToString())
    return tmp_path / "m.onnx"


def test_weights_in_files_next_to_it_are_copied(tmp_path: Path) -> None:
    source = outside(tmp_path, "weights.bin")
    assert read(source).files == (("model.onnx", source), ("weights.bin", tmp_path / "weights.bin"))


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a/../../b", "gone.bin", ""])
def test_weights_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(UsageError, match="its weights are in"):
        read(outside(tmp_path, location))
