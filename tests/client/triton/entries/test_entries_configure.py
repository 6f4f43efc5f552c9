"""What files tell and what somebody chose, made one configuration."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tidegate.errors import UsageError
from tidegate.triton.entries.configure import WarmUp, complete, first_dimension_varies, together
from tidegate.triton.entries.frameworks.reading import Reading, Tensor, config_of
from tritonclient.grpc.model_config_pb2 import ModelConfig

BATCHED = Reading(
    config_of("onnxruntime"), (("model.onnx", Path("m.onnx")),),
    (Tensor("x", "FP32", (-1, 3)), Tensor("n", "INT64", (-1,))), (Tensor("y", "FP32", (-1, 2)),),
)  # fmt: skip
FIXED = Reading(config_of("onnxruntime"), (), (Tensor("x", "FP32", (1, 3)),), (Tensor("y", "FP32", (-1, 2)),))
UNTOLD = Reading(config_of("python"), missing="nobody knows")


def parsed(text: str) -> Any:
    return text_format.Parse(text, ModelConfig())


def test_without_batches_the_shapes_are_those_of_the_file() -> None:
    assert complete(BATCHED, "m", ModelConfig()) == parsed(
        'name: "m" backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] } '
        'input { name: "n" data_type: TYPE_INT64 dims: -1 } output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }'
    )


def test_with_batches_the_first_dimension_is_left_out_and_nothing_left_is_reshaped() -> None:
    assert complete(BATCHED, "m", parsed("max_batch_size: 8")) == parsed(
        'name: "m" backend: "onnxruntime" max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 3 } '
        'input { name: "n" data_type: TYPE_INT64 dims: 1 reshape { } } '
        'output { name: "y" data_type: TYPE_FP32 dims: 2 }'
    )


def test_a_fixed_first_dimension_makes_no_batches() -> None:
    with pytest.raises(UsageError, match=r"'x' is FP32 \[1, 3\]"):
        complete(FIXED, "m", parsed("max_batch_size: 8"))
    assert first_dimension_varies(BATCHED)
    assert not first_dimension_varies(FIXED)


def test_a_tensor_without_dimensions_needs_batches() -> None:
    scalar = Reading(config_of("onnxruntime"), (), (Tensor("x", "FP32", ()),), (Tensor("y", "FP32", (1,)),))
    with pytest.raises(UsageError, match="single number"):
        complete(scalar, "m", ModelConfig())


def test_what_was_chosen_is_laid_over_what_is_told_by_name() -> None:
    chosen = parsed(
        'max_batch_size: 4 input { name: "n" dims: 7 optional: true } output { name: "y" label_filename: "l.txt" } '
        "dynamic_batching { } instance_group { count: 2 }"
    )
    made = complete(BATCHED, "m", chosen)
    assert made.input[1] == parsed('input { name: "n" data_type: TYPE_INT64 dims: 7 optional: true }').input[0]
    assert made.output[0].label_filename == "l.txt"
    assert list(made.output[0].dims) == [2]
    assert made.instance_group[0].count == 2


def test_a_framework_gives_way_in_scheduling_and_instances() -> None:
    told = Reading(parsed("dynamic_batching { preserve_ordering: true } instance_group { count: 1 } max_batch_size: 9"))
    made = complete(told, "m", parsed("sequence_batching { } instance_group { count: 2 } instance_group { count: 3 }"))
    assert made == parsed(
        'name: "m" max_batch_size: 9 sequence_batching { } instance_group { count: 2 } instance_group { count: 3 }'
    )


def test_a_tensor_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="inputs are x, n; say x"):
        complete(BATCHED, "m", parsed('input { name: "xx" dims: 3 }'))


def test_tensors_that_nobody_tells_must_be_said() -> None:
    with pytest.raises(UsageError, match=r"nobody knows\n.*--input NAME:TYPE:DIMS"):
        complete(UNTOLD, "m", parsed('input { name: "x" data_type: TYPE_FP32 dims: 3 }'))
    said = 'input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }'
    assert complete(UNTOLD, "m", parsed(said)) == parsed(f'name: "m" backend: "python" {said}')


def test_half_a_tensor_is_not_enough() -> None:
    half = 'input { name: "x" dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }'
    with pytest.raises(UsageError, match="--input x:TYPE:DIMS"):
        complete(UNTOLD, "m", parsed(half))


def test_choices_come_together_by_the_names_of_tensors() -> None:
    first = parsed('name: "a" input { name: "x" data_type: TYPE_FP32 dims: 3 } max_batch_size: 2')
    second = parsed('input { name: "x" dims: 4 } input { name: "z" optional: true } max_batch_size: 5')
    assert together(first, second) == parsed(
        'name: "a" max_batch_size: 5 input { name: "x" data_type: TYPE_FP32 dims: 4 } '
        'input { name: "z" optional: true }'
    )


def test_a_warm_up_fills_every_input_that_must_be_there() -> None:
    chosen = parsed('max_batch_size: 8 input { name: "n" optional: true }')
    made = complete(BATCHED, "m", chosen, WarmUp("random", 4))
    assert (
        made.model_warmup[0]
        == parsed(
            'model_warmup { name: "random inputs" batch_size: 4 count: 1 inputs { key: "x" '
            "value { data_type: TYPE_FP32 dims: 3 random_data: true } } }"
        ).model_warmup[0]
    )


def test_a_warm_up_must_know_every_dimension() -> None:
    with pytest.raises(UsageError, match="--warm-up-dims x:DIMS"):
        complete(BATCHED, "m", ModelConfig(), WarmUp())
    with pytest.raises(UsageError, match="no input 'z'"):
        complete(BATCHED, "m", ModelConfig(), WarmUp(dims={"z": [1]}))
    made = complete(BATCHED, "m", ModelConfig(), WarmUp(dims={"x": [2, 3], "n": [2]}))
    assert list(made.model_warmup[0].inputs["x"].dims) == [2, 3]
