import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.triton.entries.text import config_text, parse_config, read_config
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tests.counts import examples

from .corpus_entries import CORPUS

WORD = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
TENSOR = st.fixed_dictionaries(
    {"name": WORD, "data_type": st.sampled_from([1, 11, 13]), "dims": st.lists(st.integers(-1, 2**40), max_size=3)}
)
CONFIG = st.builds(
    ModelConfig,
    name=WORD,
    backend=st.sampled_from(["", "python"]),
    max_batch_size=st.integers(-1, 2**31 - 1),
    input=st.lists(TENSOR, max_size=3),
    output=st.lists(TENSOR, max_size=3),
    parameters=st.dictionaries(WORD, st.builds(lambda text: {"string_value": text}, WORD), max_size=3),
    metric_tags=st.dictionaries(WORD, WORD, max_size=3),
    dynamic_batching=st.none() | st.fixed_dictionaries({"preferred_batch_size": st.lists(st.integers(1, 9))}),
    instance_group=st.lists(
        st.fixed_dictionaries({"count": st.integers(-3, 9), "kind": st.integers(0, 3)}), max_size=2
    ),
)
BROKEN = [file.read_text("utf-8") for file in sorted((CORPUS / "bad").glob("*.pbtxt"))]
FIELDS = """\
# A comment.
name: "m"   # and another { }
input [
  {
    name: "a"
    dims: [ 1,
      2 ]
  },
  { name: "b" }
]
parameters {
  key: "tidegate.x"
  value { string_value: "1" }
}
parameters [ { key: "y" value: {
  string_value: "2" } } ]
dynamic_batching <
  preferred_batch_size: 4
  preferred_batch_size: 8
>
"""


@given(CONFIG)
def test_written_text_is_read_back(config: ModelConfig) -> None:
    read = read_config(config_text(config))
    assert read.problems == ()
    assert read.config == config
    assert config_text(read.config) == config_text(config)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("name", 2), ("input", 3), ("input[0]", 4), ("input[0].name", 5), ("input[0].dims", 6), ("input[0].dims[1]", 7),
        ("input[0].reshape", 4), ("input[1].name", 9), ('parameters["tidegate.x"]', 11),
        ('parameters["tidegate.x"].string_value', 13), ('parameters["y"].string_value', 16),
        ("dynamic_batching.preferred_batch_size[1]", 19), ("dynamic_batching.default_queue_policy.timeout_action", 17),
        ("output[0]", 1),
    ],
)  # fmt: skip
def test_a_field_has_its_line_or_its_parents(path: str, line: int) -> None:
    read = read_config(FIELDS)
    assert read.problems == ()
    assert read.line(path) == line


@examples(200)
@given(st.sampled_from(BROKEN), st.data())
def test_a_text_that_is_cut_or_changed_anywhere_is_read_or_a_problem(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.sampled_from(["", "}", "{", '"', "\\", "x", "[", ":"])) + text[at + 1 :]
    read = read_config(changed)
    assert (read.config is None) <= bool(read.problems)
    for problem in read.problems:
        file, _, line = problem.where.rpartition(":")
        assert file == "config.pbtxt"
        assert 1 <= int(line) <= changed.count("\n") + 1


def test_all_unknown_names_are_reported_together_with_the_nearest() -> None:
    read = read_config('max_batch_sise: 8\ninput {\n  nam: "a"\n  data_type: TYPE_FLOAT64\n}\nbackend: "python"\n')
    assert [(problem.where, problem.do) for problem in read.problems] == [
        ("config.pbtxt:1", "did you mean 'max_batch_size'?"),
        ("config.pbtxt:3", "did you mean 'name'?"),
        ("config.pbtxt:4", "did you mean TYPE_FP64?"),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("memory_pool_byte_size: 1", "--pinned-memory-pool-byte-size"),
        ("preferred_batch_size: 4", "dynamic_batching"),
        ("instance_group { kind: GPU }", "KIND_GPU"),
        ("input { shape: 4 }", "'dims'"),
        ("control_input { }", "sequence_batching"),
    ],
)
def test_a_field_in_the_wrong_place_is_reported_with_the_right_one(text: str, what: str) -> None:
    (problem,) = read_config(text).problems
    assert what in problem.why + problem.do


def test_texts_of_any_size_are_read_once_and_broken_ones_end_early() -> None:
    begun = time.process_time()  # not the time of other processes
    assert len(read_config("a: 1\n" * 20_000).problems) == 50
    assert len(read_config("x { " * 20_000).problems) == 1
    assert read_config('name: "' + 'a\\"' * 100_000).config is None
    assert read_config(f"input {{ data_type: {'9' * 5000} }}").problems
    parameter = 'parameters { key: "%d" value { string_value: "" } }\n'
    read = read_config("".join(parameter % number for number in range(15_000)))  # the size limit
    assert read.line('parameters["14999"].string_value') == 15_000
    assert time.process_time() - begun < 30


def test_a_missing_config_is_reported_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"here/config\.pbtxt:2: .*'bakend'[\s\S]*did you mean 'backend'\?"):
        parse_config('name: "a"\nbakend: "python"', "here/config.pbtxt")
    assert parse_config('name: "a"').name == "a"
    # Unprintable characters of a text do not reach a terminal.
    (problem,) = read_config("name: \x1b[2J").problems
    assert "\x1b" not in str(problem)
    assert r"\x1b" in str(problem)
