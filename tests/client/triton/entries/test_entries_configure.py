"""Options and what files tell, made one configuration."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.entries.configure import Options, complete, first_dimension_varies, overlaid
from tidegate.triton.entries.frameworks.reading import DATA_TYPES, Reading, Tensor, config_of, data_type
from tritonclient.grpc.model_config_pb2 import ModelConfig

BATCHED = Reading(
    config_of("onnxruntime"), (("model.onnx", Path("m.onnx")),),
    (Tensor("x", "FP32", (-1, 3)), Tensor("n", "INT64", (-1,))), (Tensor("y", "FP32", (-1, 2)),),
)  # fmt: skip
FIXED = Reading(config_of("onnxruntime"), (), (Tensor("x", "FP32", (1, 3)),), (Tensor("y", "FP32", (-1, 2)),))
OUTPUT = 'output { name: "y" data_type: TYPE_FP32 dims: 3 }'
SCALAR = Reading(config_of("onnxruntime"), (), (Tensor("x", "FP32", ()),), (Tensor("y", "FP32", (1,)),))
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
    groups = "instance_group { count: 2 } instance_group { count: 3 }"
    assert made == parsed(f'name: "m" max_batch_size: 9 sequence_batching {{ }} {groups}')


@pytest.mark.parametrize(
    ("reading", "settings", "said"),
    [
        (FIXED, "max_batch_size: 8", r"'x' is FP32 \[1, 3\]"),
        (SCALAR, "", "single number"),
        (BATCHED, 'input { name: "xx" dims: 3 }', "did you mean x"),
        (UNTOLD, 'input { name: "x" data_type: TYPE_FP32 dims: 3 }', r"nobody knows\n.*--input NAME:TYPE:DIMS"),
        (UNTOLD, f'input {{ name: "x" dims: 3 }} {OUTPUT}', "--input x:TYPE:DIMS"),
    ],
    ids=["no batches", "a number", "no such input", "untold", "half"],
)
def test_what_does_not_fit_is_refused(reading: Reading, settings: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        complete(reading, "m", parsed(settings))


def test_what_nobody_tells_can_be_said_and_a_first_dimension_that_varies_may_be_the_batch() -> None:
    said = f'input {{ name: "x" data_type: TYPE_FP32 dims: 3 }} {OUTPUT}'
    assert complete(UNTOLD, "m", parsed(said)) == parsed(f'name: "m" backend: "python" {said}')
    assert first_dimension_varies(BATCHED)
    assert not first_dimension_varies(FIXED)


def test_options_are_laid_over_settings_by_the_names_of_tensors() -> None:
    first = parsed('name: "a" input { name: "x" data_type: TYPE_FP32 dims: 3 } max_batch_size: 2')
    second = parsed('input { name: "x" dims: 4 } input { name: "z" optional: true } max_batch_size: 5')
    assert overlaid(first, second) == parsed(
        'name: "a" max_batch_size: 5 input { name: "x" data_type: TYPE_FP32 dims: 4 } '
        'input { name: "z" optional: true }'
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ""),
        ({"inputs": ["image:fp32:3,-1"]}, 'input { name: "image" data_type: TYPE_FP32 dims: 3 dims: -1 }'),
        ({"inputs": ["a:b::3"]}, 'input { name: "a:b" dims: 3 }'),
        ({"outputs": ["y:STRING:"]}, 'output { name: "y" data_type: TYPE_STRING }'),
        ({"dynamic_batching": True, "max_batch_size": 8}, "max_batch_size: 8 dynamic_batching { }"),
        ({"parameters": ["k=a=b"]}, 'parameters { key: "k" value { string_value: "a=b" } }'),
    ],
    ids=str,
)
def test_options_become_fields(options: dict[str, Any], said: str) -> None:
    assert Options(**options).config() == parsed(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_batch_size": -1}, "a batch of -1"),
        ({"inputs": ["image"]}, "NAME:TYPE:DIMS"),
        ({"inputs": [":FP32:3"]}, "NAME:TYPE:DIMS"),
        ({"inputs": ["a:FP31:3"]}, "mean FP32?"),
        ({"inputs": ["a:FP32:0"]}, "are no dimensions"),
        ({"inputs": ["a:FP32:3x4"]}, "are no dimensions"),
        ({"parameters": ["=x"]}, "KEY=VALUE"),
        ({"inputs": ["x:FP32:99999999999999999999"]}, "too large"),
        ({"max_batch_size": 2**31}, "too large"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_with_the_form(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options(**options).config()
    assert said in str(caught.value)


@given(st.sampled_from(DATA_TYPES), st.booleans(), st.booleans())
def test_types_are_known_however_they_are_written(kind: str, prefixed: bool, lower: bool) -> None:
    written = f"TYPE_{kind}" if prefixed else kind
    assert data_type(written.lower() if lower else written) == kind
