from pathlib import Path

from tidegate.findings import errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.text import parse_config
from tritonclient.grpc.model_config_pb2 import ModelConfig

from .corpus_entries import entry


def tensors(side: str, *names: str, dims: str = "4") -> str:
    return "".join(f'{side} {{ name: "{name}" data_type: TYPE_FP32 dims: [ {dims} ] }}\n' for name in names)


def step(name: str, first: str, second: str, output: str) -> str:
    inputs = "".join(f'input_map {{ key: "{key}" value: "{value}" }} ' for key, value in (("A", first), ("B", second)))
    return f'step {{ model_name: "{name}" model_version: -1 {inputs}output_map {{ key: "C" value: "{output}" }} }}\n'


STEPS = step("one", "x", "y", "left"), step("last", "left", "right", "z"), step("one", "y", "x", "right")
DIAMOND = (
    f'platform: "ensemble"\n{tensors("input", "x", "y")}{tensors("output", "z")}'
    f"ensemble_scheduling {{\n{''.join(STEPS)}}}\n"
)


def test_shapes_match_if_one_side_leaves_them_open(tmp_path: Path) -> None:
    def found(one: ModelConfig, last: ModelConfig) -> list[str]:
        return [finding.what for finding in errors(check_entry(whole, models={"one": one, "last": last}))]

    def model(dims: str) -> ModelConfig:
        return parse_config(tensors("input", "A", "B", dims=dims) + tensors("output", "C", dims=dims))

    whole = entry(tmp_path, DIAMOND, {"1/.keep": ""}, "whole")
    for one in (model("4"), model("-1"), parse_config('backend: "onnxruntime"')):  # the last declares no tensors
        assert found(one, model("4")) == []
    assert found(model("4"), model("5")) == [
        "the tensor 'left' has two shapes", "the tensor 'z' has two shapes", "the tensor 'right' has two shapes",
    ]  # fmt: skip
