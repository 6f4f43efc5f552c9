"""Findings about configurations whose tensors differ from those of the model's file. The expectations follow the
backends' own code (see `checks.contents`), because the test's Triton has none of them."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tidegate.errors import UsageError
from tidegate.findings import errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.frameworks.onnx import read_tensors
from tidegate.triton.entries.frameworks.protobuf import varint

from tests.client.triton.entries.files import FILES

from .corpus_entries import Files, entry

ONNX = 'backend: "onnxruntime"\n'
X, Y = (
    'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }\n',
    'output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }\n',
)
BATCHES = "max_batch_size: 8\n"


def network(x: list[Any] | None, y: list[Any] | None, more: tuple[str, ...] = ()) -> bytes:
    """Return a network with the input x, further scalars, and the output y."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", 1]) for name in more]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, y)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", inputs, [output])
    return helper.make_model(graph).SerializeToString()


def message(
    folder: Path, config: str, x: list[Any] | None, y: list[Any] | None, more: tuple[str, ...] = ()
) -> list[str]:
    own = entry(folder, ONNX + config, {"1/model.onnx": network(x, y, more)})
    return [str(finding) for finding in check_entry(own)]


@pytest.mark.parametrize(
    ("config", "x", "y"),
    [
        (X + Y, [3], [2]),
        (BATCHES + X + Y, ["batch", 3], ["batch", 2]),
        (X + Y, [None], [2]),
        (X.replace("[ 3", "[ -1") + Y.replace("[ 2", "[ -1"), ["n"], ["n"]),
        (BATCHES + X.replace("dims: [ 3 ]", "dims: [ 3 ] reshape { shape: [ 1, 3 ] }") + Y, [None, 1, 3], [None, 2]),
        (X.replace("[ 3", "[ 1") + Y.replace("[ 2", "[ 1"), [], []),
        (BATCHES + X.replace("dims: [ 3 ]", "dims: [ 1 ] reshape { shape: [ ] }") + Y, ["b"], ["b", 2]),
        (BATCHES, ["batch", 3], ["batch", 2]),
        ("", [3], [2]),
        (BATCHES + X.replace("3 ]", "-1 ] allow_ragged_batch: true") + Y + "dynamic_batching { }", [None], [None, 2]),
        (X + 'input { name: "w" data_type: TYPE_FP32 dims: [ 1 ] optional: true }' + Y, [3], [2]),
    ],
)
def test_contents_that_the_backend_accepts_have_no_findings(
    tmp_path: Path, config: str, x: list[Any], y: list[Any]
) -> None:
    assert message(tmp_path, config, x, y) == []


@pytest.mark.parametrize(
    ("config", "x", "y", "expected"),
    [
        (X.replace('"x"', '"input"') + Y, [3], [2], "the model has no input 'input'"),
        (X + Y.replace('"y"', '"Y"'), [3], [2], "the model has no output 'Y'"),
        (X.replace("FP32", "INT64") + Y, [3], [2], "input 'x' is TYPE_INT64, but the model has TYPE_FP32"),
        (X + Y.replace("FP32", "FP16"), [3], [2], "output 'y' is TYPE_FP16, but the model has TYPE_FP32"),
        (X + Y, [4], [2], "input 'x' has dims [3], but the model [4]"),
        (X.replace("[ 3", "[ -1") + Y, [4], [2], "input 'x' has dims [-1], but the model [4]"),
        (X + Y, [1, 3], [2], "input 'x' has dims [3], but the model [1, 3]"),
        (X + Y.replace("[ 2", "[ -1"), [3], [2], "output 'y' has dims [-1], but the model [2]"),
        (BATCHES + X + Y, [3], [2], "max_batch_size is 8, but the model takes no batches: 'x'"),
        (BATCHES + X + Y, [8, 3], [8, 2], "max_batch_size is 8, but the model takes no batches: 'x'"),
        (BATCHES, [8, 3], ["b", 2], "max_batch_size is 8, but the model takes no batches: 'x'"),
        (
            BATCHES + X.replace("[ 3", "[ 8, 3") + Y,
            [None, 3],
            [None, 2],
            "input 'x' has dims [8, 3], but the model [3], without the batch",
        ),
        (X + Y, ["batch", 3], ["batch", 2], "input 'x' has dims [3], but the model [-1, 3]"),
        (X + Y, [], [2], "input 'x' has dims [3], but the model []"),
        (
            BATCHES + X.replace("3 ]", "3 ] allow_ragged_batch: true") + Y + "dynamic_batching { }",
            [None, 3],
            [None, 2],
            "input 'x' is ragged",
        ),
    ],
)
def test_contents_that_the_backend_refuses_are_errors(
    tmp_path: Path, config: str, x: list[Any], y: list[Any], expected: str
) -> None:
    found = [each for each in message(tmp_path, config, x, y) if "error" in each.split("\n")[0]]
    assert expected in found[0]
    assert found[0].startswith("config.pbtxt:")
    assert "1/model.onnx has" in found[0]


def test_an_undeclared_input_is_an_error_but_triton_declares_control_inputs(tmp_path: Path) -> None:
    control = 'sequence_batching { control_input { name: "%s" control { kind: CONTROL_SEQUENCE_START '
    control += "int32_false_true: [ 0, 1 ] } } }"
    batch = (["batch", 3], ["batch", 2], ("start",))
    assert message(tmp_path / "with", BATCHES + X + Y + control % "start", *batch) == []
    (missing,) = message(tmp_path / "without", BATCHES + X + Y, *batch)
    assert "error: the model has the input 'start', which is not declared" in missing
    (other,) = message(tmp_path / "other", BATCHES + X + Y + control % "begin", *batch)
    assert "error: the model has no input 'begin'" in other


def test_an_output_whose_size_the_file_leaves_open_is_not_sure(tmp_path: Path) -> None:
    """ONNX Runtime infers sizes that the file does not contain, and Triton compares with those."""
    (warned,) = message(tmp_path, X + Y, [3], ["n"])
    assert "warning: output 'y' has dims [2]" in warned


def test_weights_are_not_read_however_large(tmp_path: Path) -> None:
    size = 1 << 30
    model = onnx.load_model_from_string(network([3], [2]))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), "w"))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [size // 4]))
    graph = model.graph.SerializeToString()
    weights = helper.make_tensor("w2", TensorProto.FLOAT, [0], b"", raw=True).SerializeToString()
    own = entry(tmp_path, ONNX + X + Y, {"1/empty": b""})
    with (own / "1" / "model.onnx").open("wb") as file:  # a graph with weights at the end, as a sparse file
        data = b"\x4a" + varint(size)
        inner = b"\x2a" + varint(len(weights) + len(data) + size) + weights + data
        file.write(b"\x3a" + varint(len(graph) + len(inner) + size) + graph + inner)
        file.truncate(file.tell() + size)
    tracemalloc.start()
    try:
        assert check_entry(own) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize(
    "content", [b"garbage", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x3a\x7f", b"\x0b"]
)
def test_a_file_that_is_no_model_is_an_error(tmp_path: Path, content: bytes) -> None:
    (found,) = errors(check_entry(entry(tmp_path, ONNX + X + Y, {"1/model.onnx": content})))
    assert (found.where, "not a readable ONNX model" in found.what) == ("1/model.onnx", True)
    with pytest.raises(UsageError, match="not a readable ONNX model"):
        read_tensors(tmp_path / "m" / "1" / "model.onnx")


def test_unreadable_contents_are_a_warning(tmp_path: Path) -> None:
    odd = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [odd], [y])
    own = entry(tmp_path, ONNX + X + Y, {"1/model.onnx": helper.make_model(graph).SerializeToString()})
    (found,) = check_entry(own)
    assert str(found).startswith("1/model.onnx: warning: its tensors were not compared: 'x' is a sequence")


VINO = 'backend: "openvino" max_batch_size: 8\n'
NAMED = 'input { name: "a_name" data_type: TYPE_FP32 dims: [ 3 ] }\n'
PROBABLE = 'output { name: "probabilities" data_type: TYPE_FP32 dims: [ 2 ] }\n'
TORCH = 'platform: "pytorch_libtorch"\n'
OUT = 'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }\n'
COMPARED: Files = {
    "1/model.xml": FILES / "openvino.xml",
    "1/model.bin": FILES / "openvino.bin",
    "1/model.pt": FILES / "script.pt",
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (VINO + NAMED + PROBABLE, None),
        (VINO + NAMED.replace("FP32", "FP16") + PROBABLE, None),
        (VINO + NAMED.replace("[ 3", "[ -1") + PROBABLE, None),
        (VINO + NAMED + PROBABLE.replace("[ 2", "[ -1"), "output 'probabilities' has dims [-1], but the model [2]"),
        (VINO + NAMED.replace("a_name", "x") + PROBABLE, "the model has no input 'x'"),
        (VINO + NAMED.replace("[ 3", "[ 5") + PROBABLE, "input 'a_name' has dims [5], but the model [3]"),
        (
            VINO
            + 'parameters { key: "RESHAPE_IO_LAYERS" value { string_value: "yes" } }'
            + NAMED.replace("[ 3", "[ 5")
            + PROBABLE,
            None,
        ),
        (TORCH + X + X.replace("x", "z") + OUT, None),
        (TORCH + X + OUT, "1 inputs are declared, but forward takes 2"),
    ],
)
def test_files_of_other_frameworks_are_compared(tmp_path: Path, config: str, expected: str | None) -> None:
    found = errors(check_entry(entry(tmp_path, config, COMPARED)))
    assert len(found) == (0 if expected is None else 1), found
    assert all(str(expected) in str(each) for each in found), found


def test_a_forest_that_is_given_rows_of_another_length_is_warned_of(tmp_path: Path) -> None:
    from tidegate.triton.entries.frameworks.fil import read_lightgbm

    (features,) = read_lightgbm(FILES / "lightgbm_regression.txt").inputs[0].dims
    config = 'backend: "fil" max_batch_size: 8 parameters { key: "model_type" value { string_value: "lightgbm" } }\n'
    config += 'parameters { key: "is_classifier" value { string_value: "false" } }\n'
    config += 'input { name: "input__0" data_type: TYPE_FP32 dims: [ %d ] }\n'
    config += 'output { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    files: Files = {"1/model.txt": FILES / "lightgbm_regression.txt"}
    assert check_entry(entry(tmp_path, config % features, files, "right")) == []
    (found,) = check_entry(entry(tmp_path, config % (features + 1), files, "wrong"))
    assert f"warning: input 'input__0' has dims [{features + 1}], but the forest has {features}" in str(found)
