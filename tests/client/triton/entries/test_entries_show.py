"""What an entry is, told and drawn from its files."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from rich.console import Console
from tidegate.errors import UsageError
from tidegate.triton.entries.drawing import draw
from tidegate.triton.entries.entry import read_entry
from tidegate.triton.entries.show import Shown, show_entry
from tritonclient.grpc.model_config_pb2 import ModelConfig

PLAIN = """
name: "m" backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [3, -1] optional: true allow_ragged_batch: true }
output { name: "y" data_type: TYPE_STRING dims: 1 reshape { } label_filename: "names.txt" }
"""
CHAIN = """
name: "m" platform: "ensemble" input { name: "a" data_type: TYPE_FP32 dims: 3 }
output { name: "d" data_type: TYPE_INT64 dims: -1 }
ensemble_scheduling {
  step { model_name: "left" model_version: -1 input_map { key: "x" value: "a" } output_map { key: "y" value: "b" } }
  step { model_name: "right" model_version: 3 input_map { key: "x" value: "a" } output_map { key: "y" value: "c" } }
  step { model_name: "both" model_version: -1 input_map { key: "l" value: "b" } input_map { key: "r" value: "c" }
         output_map { key: "y" value: "d" } }
}
"""


def shown(folder: Path, text: str) -> Shown:
    (folder / "m" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "m" / "1" / "model.py").write_text("12345")
    (folder / "m" / "config.pbtxt").write_text(text)
    return show_entry(folder / "m")


def drawn(folder: Path, text: str) -> str:
    told = shown(folder, text)
    console = Console(width=120, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(draw(read_entry(folder / "m").config, told))
    return capture.get()


def test_tensors_are_told_as_requests_have_them(tmp_path: Path) -> None:
    told = shown(tmp_path, PLAIN)
    assert (told.name, told.backend, told.versions, told.files) == ("m", "python", (1,), 2)
    assert told.size == len(PLAIN) + 5
    (x,), (y,) = told.inputs, told.outputs
    assert (x.name, x.data_type, x.shape, x.notes) == ("x", "FP32", (-1, 3, -1), ("optional", "ragged"))
    assert (y.shape, y.notes) == ((-1, 1), ("the model itself has []", "labels in names.txt"))
    assert told.config["input"][0]["dims"] == ["3", "-1"]


@pytest.mark.parametrize(
    ("more", "what", "how"),
    [
        ("", "batches", "as requests bring them, up to 8"),
        ("", "instances", "one for each GPU, else one"),
        (
            "dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 1500 "
            "preserve_ordering: true priority_levels: 3 default_priority_level: 2 "
            "default_queue_policy { max_queue_size: 7 } "
            "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 2000000 "
            "allow_timeout_override: true } } }",
            "batches",
            "dynamic, up to 8; waits up to 1.5 ms for more; rather 4, 8; 3 priorities, 2 unless said; answers in "
            "order; at most 7 wait; priority 1: delay after 2 s, a request may say less",
        ),
        (
            'sequence_batching { oldest { } max_sequence_idle_microseconds: 900 '
            'control_input { name: "S" control { } } '
            'state { input_name: "i" output_name: "o" } }',
            "batches",
            "of sequences, up to 8; oldest; given up after 900 µs without a request; control S; state i → o",
        ),
        (
            'instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] rate_limiter { resources { name: "R" count: 3 '
            'global: true } priority: 4 } }',
            "instances",
            "2 × GPU 0, 1, rate limited: R=3 (global), priority 4",
        ),
        ("version_policy { specific { versions: [1, 3] } }", "versions served", "specific 1 3"),
        ("version_policy { latest { num_versions: 2 } }", "versions served", "latest 2"),
        ("version_policy { all { } }", "versions served", "all"),
        (
            "model_transaction_policy { decoupled: true }",
            "answers",
            "any number for each request (decoupled): call it by a stream",
        ),
        ("response_cache { enable: true }", "response cache", "on, where the server has one"),
        (
            'optimization { priority: PRIORITY_MAX execution_accelerators { gpu_execution_accelerator { '
            'name: "tensorrt" parameters { key: "precision_mode" value: "FP16" } } } }',
            "accelerator (gpu)",
            "tensorrt precision_mode=FP16",
        ),
        (
            'model_warmup { name: "w" batch_size: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: [3, 4] '
            "zero_data: true } } }",
            "warm-up",
            "w: 1 × batch 2: x [3, 4]",
        ),
        ('parameters { key: "k" value { string_value: "v" } }', "parameter", "k=v"),
    ],
    ids=[
        "no-scheduling", "no-instances", "dynamic", "sequences", "instances", "specific", "latest", "all", "decoupled",
        "cache", "accelerator", "warm-up", "parameter",
    ],
)  # fmt: skip
def test_how_triton_runs_it_is_told_in_words(tmp_path: Path, more: str, what: str, how: str) -> None:
    assert (what, how) in shown(tmp_path, PLAIN + more).runs


def test_an_entry_without_a_name_has_its_folders(tmp_path: Path) -> None:
    assert shown(tmp_path, PLAIN.replace('name: "m"', "", 1)).name == "m"
    assert shown(tmp_path, PLAIN.replace('name: "m"', 'name: "other"', 1)).name == "other"


def test_what_cannot_be_read_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config.pbtxt:2.*\n*.*"):
        shown(tmp_path, 'name: "m"\nmax_batch: 3\n')
    (tmp_path / "m" / "config.pbtxt").unlink()
    with pytest.raises(UsageError, match=r"it has no config\.pbtxt"):
        show_entry(tmp_path / "m")
    with pytest.raises(UsageError, match="no such folder"):
        show_entry(tmp_path / "gone")


def test_steps_that_can_run_at_once_stand_side_by_side(tmp_path: Path) -> None:
    lines = drawn(tmp_path, CHAIN).splitlines()
    assert lines[0] == "input  a  FP32[3]"
    row = next(line for line in lines if "1 left" in line)
    assert "2 right version 3" in row
    assert "3 both" not in row
    assert any("l ← b (of left)" in line for line in lines)
    assert any("x ← a" in line and "of" not in line for line in lines)
    assert lines[-1] == "output  d  INT64[?]"
    assert [step.model for step in shown(tmp_path, CHAIN).steps] == ["left", "right", "both"]


def test_steps_that_never_run_are_drawn_apart(tmp_path: Path) -> None:
    config = text_format.Parse(CHAIN, ModelConfig())
    config.ensemble_scheduling.step[1].input_map["x"] = "nowhere"
    lines = drawn(tmp_path, text_format.MessageToString(config)).splitlines()
    apart = next(number for number, line in enumerate(lines) if line.startswith("never run"))
    assert any("2 right" in line and "3 both" in line for line in lines[apart:])
    assert not any("2 right" in line for line in lines[:apart])


def test_names_are_no_markup(tmp_path: Path) -> None:
    assert "[bold]left:smile:" in drawn(tmp_path, CHAIN.replace('"left"', '"[bold]left:smile:"'))


def test_no_batches_are_told_where_dynamic_batching_has_none_to_make(tmp_path: Path) -> None:
    told = dict(shown(tmp_path, 'name: "m" backend: "python" dynamic_batching { }').runs)
    assert told["batches"].startswith("none")
