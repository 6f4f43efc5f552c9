"""Dynamic and sequence batching in the words of the command line."""

from typing import Any

import pytest
from google.protobuf import text_format
from tidegate.errors import UsageError
from tidegate.triton.entries.batching import BatchingChoices, QueueChoices
from tritonclient.grpc.model_config_pb2 import ModelConfig

SAID: tuple[tuple[BatchingChoices, str], ...] = (
    (BatchingChoices(), ""),
    (BatchingChoices(dynamic=True), "dynamic_batching { }"),
    (
        BatchingChoices(preferred=[4, 8], delay="2ms", preserve_ordering=True),
        "dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 2000 preserve_ordering: true }",
    ),
    (
        BatchingChoices(
            priority_levels=3,
            queue=QueueChoices(10, "5ms", "delay", True),
            queues=["1:timeout=1ms,size=2", "2:override"],
        ),
        "dynamic_batching { priority_levels: 3 default_priority_level: 3 default_queue_policy { timeout_action: DELAY "
        "default_timeout_microseconds: 5000 allow_timeout_override: true max_queue_size: 10 } "
        "priority_queue_policy { key: 1 value { default_timeout_microseconds: 1000 max_queue_size: 2 } } "
        "priority_queue_policy { key: 2 value { allow_timeout_override: true } } }",
    ),
    (
        BatchingChoices(queue=QueueChoices(size=3)),
        "dynamic_batching { default_queue_policy { max_queue_size: 3 } }",
    ),
    (
        BatchingChoices(priority_levels=2, default_priority=1),
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
    ),
    (
        BatchingChoices(sequence="direct", idle="5s", delay="1ms", controls=["S:start", "E:end:fp32", "R:ready:bool"]),
        "sequence_batching { max_sequence_idle_microseconds: 5000000 direct { max_queue_delay_microseconds: 1000 } "
        'control_input { name: "S" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } '
        'control_input { name: "E" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } } '
        'control_input { name: "R" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] } } }',
    ),
    (
        BatchingChoices(
            sequence="oldest", max_candidates=4, preferred=[2], controls=["C:corrid:STRING"], states=["i:o:INT32:1,-1"]
        ),
        "sequence_batching { oldest { max_candidate_sequences: 4 preferred_batch_size: 2 } "
        'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } '
        'state { input_name: "i" output_name: "o" data_type: TYPE_INT32 dims: [1, -1] } }',
    ),
)


@pytest.mark.parametrize(("choices", "said"), SAID, ids=[str(number) for number in range(len(SAID))])
def test_choices_become_fields(choices: BatchingChoices, said: str) -> None:
    assert choices.settings() == text_format.Parse(said, ModelConfig())


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"sequence": "newest"}, "say one of direct, oldest"),
    ({"sequence": "direct", "dynamic": True}, "exclude each other"),
    ({"sequence": "direct", "queues": ["1:size=2"]}, "exclude each other"),
    ({"sequence": "direct", "max_candidates": 3}, "strategy oldest only"),
    ({"controls": ["S:start"]}, "--sequence-batching"),
    ({"idle": "5s"}, "--sequence-batching"),
    ({"sequence": "direct", "controls": ["S:begin"]}, "control of sequences"),
    ({"sequence": "direct", "controls": ["S:start:INT64"]}, "say S:start:INT32"),
    ({"sequence": "direct", "states": ["i:o:INT32"]}, "INPUT:OUTPUT:TYPE:DIMS"),
    ({"queues": ["high:size=2"]}, "no number"),
    ({"queues": ["1:length=2"]}, "rule of a queue"),
    ({"queue": QueueChoices(timeout_action="drop", size=1)}, "timeout action"),
    ({"delay": "soon"}, "is no time"),
)


@pytest.mark.parametrize(("chosen", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_words_that_make_no_sense_are_refused(chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        BatchingChoices(**chosen).settings()
    assert said in str(caught.value)


@pytest.mark.parametrize("said", [{"delay": "99999999999999999999s"}, {"priority_levels": -1}, {"preferred": [2**40]}])
def test_numbers_that_no_configuration_holds_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="too large"):
        BatchingChoices(**said).settings()
