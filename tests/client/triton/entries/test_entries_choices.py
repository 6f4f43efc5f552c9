"""The words of the command line, as the fields of Triton's configuration."""

from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.entries.choices import Choices, microseconds
from tidegate.triton.entries.frameworks.reading import DATA_TYPES, data_type
from tritonclient.grpc.model_config_pb2 import ModelConfig

SAID: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, ""),
    ({"inputs": ["image:fp32:3,224,-1"]}, 'input { name: "image" data_type: TYPE_FP32 dims: 3 dims: 224 dims: -1 }'),
    ({"inputs": ["a:b::3"]}, 'input { name: "a:b" dims: 3 }'),
    ({"outputs": ["y:STRING:"]}, 'output { name: "y" data_type: TYPE_STRING }'),
    (
        {"inputs": ["a:BOOL:1"], "ragged": ["a"], "optional": ["a", "b"]},
        'input { name: "a" data_type: TYPE_BOOL dims: 1 allow_ragged_batch: true optional: true } '
        'input { name: "b" optional: true }',
    ),
    ({"instances": ["2"]}, "instance_group { count: 2 }"),
    (
        {"instances": ["1:gpu:0,1", "4:cpu"]},
        "instance_group { count: 1 kind: KIND_GPU gpus: 0 gpus: 1 } instance_group { count: 4 kind: KIND_CPU }",
    ),
    (
        {"instances": ["2"], "resources": ["R1=4", "R2=1:global"], "rate_priority": 3},
        'instance_group { count: 2 rate_limiter { resources { name: "R1" count: 4 } '
        'resources { name: "R2" global: true count: 1 } priority: 3 } }',
    ),
    (
        {"accelerators": ["tensorrt:precision_mode=FP16,max_workspace_size_bytes=9", "openvino"]},
        "optimization { execution_accelerators { gpu_execution_accelerator { name: "
        '"tensorrt" parameters { key: "max_workspace_size_bytes" value: "9" } parameters { key: "precision_mode" '
        'value: "FP16" } } cpu_execution_accelerator { name: "openvino" } } }',
    ),
    ({"version_policy": "all"}, "version_policy { all { } }"),
    ({"version_policy": "latest:2"}, "version_policy { latest { num_versions: 2 } }"),
    ({"version_policy": "specific:1,3"}, "version_policy { specific { versions: 1 versions: 3 } }"),
    (
        {"decoupled": True, "response_cache": True, "max_batch_size": 8},
        "max_batch_size: 8 model_transaction_policy { decoupled: true } response_cache { enable: true }",
    ),
    ({"parameters": ["k=a=b"]}, 'parameters { key: "k" value { string_value: "a=b" } }'),
)


@pytest.mark.parametrize(("chosen", "said"), SAID, ids=[str(number) for number in range(len(SAID))])
def test_choices_become_fields(chosen: dict[str, Any], said: str) -> None:
    assert Choices(**chosen).settings() == text_format.Parse(said, ModelConfig())


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"max_batch_size": -1}, "a batch of -1"),
    ({"inputs": ["image"]}, "NAME:TYPE:DIMS"),
    ({"inputs": [":FP32:3"]}, "NAME:TYPE:DIMS"),
    ({"inputs": ["a:FP31:3"]}, "say FP32"),
    ({"inputs": ["a:FP32:0"]}, "are no dimensions"),
    ({"inputs": ["a:FP32:3x4"]}, "are no dimensions"),
    ({"instances": ["0"]}, "no number"),
    ({"instances": ["two"]}, "no number"),
    ({"instances": ["1:gpus"]}, "say gpu"),
    ({"instances": ["1:gpu:a"]}, "COUNT"),
    ({"resources": ["R1"]}, "NAME=COUNT"),
    ({"resources": ["R1=2:worldwide"]}, "NAME=COUNT"),
    ({"accelerators": [":a=b"]}, "NAME"),
    ({"accelerators": ["tensorrt:fast"]}, "KEY=VALUE"),
    ({"version_policy": "newest"}, "latest:N"),
    ({"version_policy": "specific:one"}, "no number"),
    ({"parameters": ["=x"]}, "KEY=VALUE"),
)


@pytest.mark.parametrize(("chosen", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_words_that_make_no_sense_are_refused_with_the_form(chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Choices(**chosen).settings()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("said", "count"), [("500us", 500), ("5ms", 5000), ("1.5ms", 1500), ("2s", 2_000_000), ("1m", 60_000_000), ("7", 7)]
)
def test_times_are_in_microseconds(said: str, count: int) -> None:
    assert microseconds(said) == count


@pytest.mark.parametrize("said", ["", "ms", "-1s", "5 hours", "1e3s"])
def test_what_is_no_time_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        microseconds(said)


@given(st.sampled_from(DATA_TYPES), st.booleans(), st.booleans())
def test_types_are_known_however_they_are_written(kind: str, prefixed: bool, lower: bool) -> None:
    written = f"TYPE_{kind}" if prefixed else kind
    assert data_type(written.lower() if lower else written) == kind


@pytest.mark.parametrize(
    "said",
    [{"inputs": ["x:FP32:99999999999999999999"]}, {"max_batch_size": 2**31}, {"instances": ["1:gpu:9999999999"]}],
)
def test_numbers_that_no_configuration_holds_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="too large"):
        Choices(**said).settings()
