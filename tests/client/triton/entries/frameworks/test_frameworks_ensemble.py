"""Entries chained into an ensemble by the names of their tensors."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tidegate.errors import UsageError
from tidegate.triton.entries.ensemble import chain
from tritonclient.grpc.model_config_pb2 import ModelConfig


def entry(folder: Path, name: str, inputs: str, outputs: str, batch: int = 0) -> Path:
    """Write an entry with tensors `name:TYPE:DIM`, several with spaces."""
    lines = [f'name: "{name}"\nbackend: "python"\nmax_batch_size: {batch}']
    for side, texts in (("input", inputs), ("output", outputs)):
        for text in texts.split():
            tensor, kind, dim, *more = text.split(":")
            optional = " optional: true" if more else ""
            lines.append(f'{side} {{ name: "{tensor}" data_type: TYPE_{kind} dims: {dim}{optional} }}')
    (folder / name).mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text("\n".join(lines))
    return folder / name


def test_tensors_of_one_name_are_one_and_the_rest_is_outside(tmp_path: Path) -> None:
    steps = [
        entry(tmp_path, "tokens", "text:STRING:1", "ids:INT64:-1 mask:INT64:-1", 8),
        entry(tmp_path, "model", "ids:INT64:-1 mask:INT64:-1 hint:FP32:1:optional", "logits:FP32:5", 4),
    ]
    assert chain(steps).config == text_format.Parse(
        """
        platform: "ensemble" max_batch_size: 4
        input { name: "text" data_type: TYPE_STRING dims: 1 }
        output { name: "logits" data_type: TYPE_FP32 dims: 5 }
        ensemble_scheduling {
          step { model_name: "tokens" model_version: -1 input_map { key: "text" value: "text" }
                 output_map { key: "ids" value: "ids" } output_map { key: "mask" value: "mask" } }
          step { model_name: "model" model_version: -1
                 input_map { key: "ids" value: "ids" } input_map { key: "mask" value: "mask" }
                 output_map { key: "logits" value: "logits" } }
        }
        """,
        ModelConfig(),
    )


def test_links_give_other_names_and_feed_what_is_optional(tmp_path: Path) -> None:
    steps = [
        entry(tmp_path, "a", "x:FP32:3", "y:FP32:3"),
        entry(tmp_path, "b", "x:FP32:3 o:FP32:1:optional", "y:FP32:3"),
    ]
    config = chain(steps, {"a.y": "between", "b.x": "between", "b.o": "hint"}).config
    assert dict(config.ensemble_scheduling.step[1].input_map) == {"x": "between", "o": "hint"}
    assert [each.name for each in config.input] == ["x", "hint"]
    assert [each.name for each in config.output] == ["y"]


def test_steps_with_and_without_batches_make_an_ensemble_without(tmp_path: Path) -> None:
    steps = [entry(tmp_path, "a", "x:FP32:3", "y:FP32:3", 8), entry(tmp_path, "b", "y:FP32:3", "z:FP32:3")]
    config = chain(steps).config
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [-1, 3]
    assert list(config.output[0].dims) == [3]


def test_steps_that_take_nothing_of_each_other_are_noted_with_the_link_that_may_be_meant(tmp_path: Path) -> None:
    steps = [entry(tmp_path, "a", "raw:FP32:3", "NORMAL:FP32:3"), entry(tmp_path, "b", "X:FP32:3 k:INT8:1", "Y:FP32:1")]
    _, apart = chain(steps).notes
    assert apart == "b takes nothing of the steps before it; if it is to take NORMAL: --link b.X=NORMAL"
    (_,) = chain(steps, {"b.X": "NORMAL"}).notes
    with pytest.raises(UsageError, match=r"did you mean b\.X\? There are a\.raw, a\.NORMAL, b\.X, b\.k, b\.Y"):
        chain(steps, {"b.XX": "NORMAL"})


@pytest.mark.parametrize(
    ("inputs", "outputs", "links", "said"),
    [
        ("y:FP32:3", "y:FP32:3", {}, "--link b.y=NAME"),
        ("x:INT64:3", "z:FP32:3", {}, "of different types"),
        ("y:FP32:3", "z:FP32:3", {"b.nothing": "z"}, "nothing is called b.nothing"),
    ],
    ids=["twice", "types", "link"],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, inputs: str, outputs: str, links: dict[str, str], said: str
) -> None:
    steps = [entry(tmp_path, "a", "x:FP32:3", "y:FP32:3"), entry(tmp_path, "b", inputs, outputs)]
    with pytest.raises(UsageError) as caught:
        chain(steps, links)
    assert said in str(caught.value)


def test_steps_must_name_their_tensors(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    with pytest.raises(UsageError, match="no entry"):
        chain([tmp_path / "plan"])
    (tmp_path / "plan" / "config.pbtxt").write_text('backend: "tensorrt"')
    with pytest.raises(UsageError, match="names no tensors"):
        chain([tmp_path / "plan"])
