"""Ensembles are graphs, and each step takes and gives what its model declares."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tidegate.findings import errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.ensemble import graph
from tidegate.triton.entries.text import config_text, parse_config
from tritonclient.grpc.model_config_pb2 import ModelConfig

from .corpus_entries import entry


def tensors(side: str, *names: str, data_type: str = "TYPE_FP32", dims: str = "4") -> str:
    return "".join(f'{side} {{ name: "{name}" data_type: {data_type} dims: [ {dims} ] }}\n' for name in names)


def step(name: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [("input_map", inputs), ("output_map", outputs)]
    pairs = "".join(f'{field} {{ key: "{k}" value: "{v}" }} ' for field, map_ in maps for k, v in map_.items())
    return f'step {{ model_name: "{name}" model_version: -1 {pairs}}}\n'


def ensemble(*steps: str, inputs: tuple[str, ...] = ("x", "y"), outputs: tuple[str, ...] = ("z",)) -> ModelConfig:
    return parse_config(
        'platform: "ensemble"\n' + tensors("input", *inputs) + tensors("output", *outputs)
        + "ensemble_scheduling {\n" + "".join(steps) + "}\n"
    )  # fmt: skip


DIAMOND = ensemble(
    step("one", {"A": "x", "B": "y"}, {"C": "left"}),
    step("last", {"A": "left", "B": "right"}, {"C": "z"}),
    step("one", {"A": "y", "B": "x"}, {"C": "right"}),
)


def test_a_diamond_runs_in_waves() -> None:
    seen = graph(DIAMOND)
    assert seen.order == ((0, 2), (1,))
    assert seen.producers["left"] is seen.steps[0]
    assert "x" not in seen.producers
    assert seen.steps[1].inputs == (("A", "left"), ("B", "right"))
    assert graph(ensemble(step("a", {"A": "q"}, {"C": "p"}), step("a", {"A": "p"}, {"C": "q"}))).order == ()


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 9)), max_size=8))
def test_a_step_comes_after_whoever_makes_what_it_takes(wiring: list[tuple[list[int], int]]) -> None:
    steps = [step("m", {f"I{n}": f"t{t}" for n, t in enumerate(takes)}, {"O": f"t{gives}"}) for takes, gives in wiring]
    seen = graph(ensemble(*steps, inputs=("t0", "t1")))
    there = {"t0", "t1"}
    for wave in seen.order:
        for index in wave:
            assert seen.steps[index].takes <= there
        there |= {tensor for index in wave for tensor in seen.steps[index].gives}
    ran = {index for wave in seen.order for index in wave}
    for one in seen.steps:
        assert (one.index in ran) == (one.takes <= there)


def test_shapes_meet_where_one_side_leaves_them_open(tmp_path: Path) -> None:
    def found(one: ModelConfig, last: ModelConfig) -> list[str]:
        return [finding.what for finding in errors(check_entry(whole, models={"one": one, "last": last}))]

    def model(dims: str) -> ModelConfig:
        return parse_config(tensors("input", "A", "B", dims=dims) + tensors("output", "C", dims=dims))

    whole = entry(tmp_path, config_text(DIAMOND), {"1/.keep": ""}, "whole")
    for one in (model("4"), model("-1"), parse_config('backend: "onnxruntime"')):  # the last says no tensors
        assert found(one, model("4")) == []
    assert found(model("4"), model("5")) == [
        "the tensor 'left' has two shapes", "the tensor 'z' has two shapes", "the tensor 'right' has two shapes",
    ]  # fmt: skip
