from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tidegate.errors import UsageError
from tidegate.triton.entries.configure import Options, complete
from tidegate.triton.entries.frameworks.reading import Reading, Tensor, config_of
from tritonclient.grpc.model_config_pb2 import ModelConfig

BATCHED = Reading(
    config_of("onnxruntime"), (("model.onnx", Path("m.onnx")),),
    (Tensor("x", "FP32", (-1, 3)), Tensor("n", "INT64", (-1,))), (Tensor("y", "FP32", (-1, 2)),),
)  # fmt: skip
FIXED = Reading(config_of("onnxruntime"), (), (Tensor("x", "FP32", (1, 3)),), (Tensor("y", "FP32", (-1, 2)),))
SCALAR = Reading(config_of("onnxruntime"), (), (Tensor("x", "FP32", ()),), (Tensor("y", "FP32", (1,)),))
UNKNOWN = Reading(config_of("python"), missing="it is unknown")


def parsed(text: str) -> Any:
    return text_format.Parse(text, ModelConfig())


@pytest.mark.parametrize(
    ("reading", "options", "expected"),
    [
        (
            BATCHED, {},
            'backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } '
            'input { name: "n" data_type: TYPE_INT64 dims: -1 } output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }'
        ),
        (
            BATCHED, {"max_batch_size": 8, "dynamic_batching": True},
            'backend: "onnxruntime" max_batch_size: 8 dynamic_batching { } '
            'input { name: "x" data_type: TYPE_FP32 dims: 3 } '
            'input { name: "n" data_type: TYPE_INT64 dims: 1 reshape { } } '
            'output { name: "y" data_type: TYPE_FP32 dims: 2 }'
        ),
        (
            BATCHED, {"max_batch_size": 4, "inputs": ["n::7"], "outputs": ["y:FP16:"]},
            'backend: "onnxruntime" max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 3 } '
            'input { name: "n" data_type: TYPE_INT64 dims: 7 } output { name: "y" data_type: TYPE_FP16 dims: 2 }'
        ),
        (
            UNKNOWN, {"inputs": ["a:b:fp32:3,-1"], "outputs": ["y:STRING:[3]"]},
            'backend: "python" input { name: "a:b" data_type: TYPE_FP32 dims: [3, -1] } '
            'output { name: "y" data_type: TYPE_STRING dims: 3 }'
        ),
    ],
    ids=["the file's shapes", "without the batch", "what was chosen", "not in the file"],
)  # fmt: skip
def test_files_and_options_give_one_configuration(reading: Reading, options: dict[str, Any], expected: str) -> None:
    assert complete(reading, "m", Options(**options)) == parsed(f'name: "m" {expected}')


@pytest.mark.parametrize(
    ("reading", "options", "message"),
    [
        (FIXED, {"max_batch_size": 8}, "'x' is FP32 [1, 3]"),
        (SCALAR, {}, "is a scalar"),
        (BATCHED, {"inputs": ["xx::3"]}, "did you mean x"),
        (UNKNOWN, {"inputs": ["x:FP32:3"]}, "it is unknown\n  do: add --input NAME:TYPE:DIMS"),
        (UNKNOWN, {"inputs": ["x::3"], "outputs": ["y:FP32:3"]}, "--input x:TYPE:DIMS"),
        (UNKNOWN, {"inputs": ["image"]}, "NAME:TYPE:DIMS"),
        (UNKNOWN, {"inputs": [":FP32:3"]}, "NAME:TYPE:DIMS"),
        (UNKNOWN, {"inputs": ["a:FP31:3"]}, "mean FP32?"),
        (UNKNOWN, {"inputs": ["a:FP32:0"]}, "are not dimensions"),
        (UNKNOWN, {"inputs": ["a:FP32:3x4"]}, "are not dimensions"),
    ],
)
def test_contradictory_or_invalid_settings_are_refused(reading: Reading, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        complete(reading, "m", Options(**options))
    assert message in str(caught.value)
