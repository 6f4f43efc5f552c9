"""What an entry is, by its files."""

from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.cli.entries import print_entry
from tidegate.triton.entries.show import Shown, show_entry

from .corpus_entries import entry

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
    return show_entry(entry(folder, text, {"1/model.py": "12345"}))


def test_tensors_are_told_as_requests_have_them(tmp_path: Path) -> None:
    told = shown(tmp_path, PLAIN)
    assert (told.name, told.backend, told.versions, told.files) == ("m", "python", (1,), 2)
    assert told.size == len(PLAIN) + 5
    (x,), (y,) = told.inputs, told.outputs
    assert (x.name, x.data_type, x.shape, x.notes) == ("x", "FP32", (-1, 3, -1), ("optional", "ragged"))
    assert (y.shape, y.notes) == ((-1, 1), ("the model itself has []", "labels in names.txt"))
    assert told.config["input"][0]["dims"] == ["3", "-1"]
    assert shown(tmp_path, PLAIN.replace('name: "m"', "", 1)).name == "m"
    assert shown(tmp_path, PLAIN.replace('name: "m"', 'name: "other"', 1)).name == "other"


def test_how_triton_runs_it_is_told_in_the_words_of_its_configuration(tmp_path: Path) -> None:
    more = "dynamic_batching {\n  preferred_batch_size: 4\n}\nresponse_cache {\n  enable: true\n}"
    assert shown(tmp_path, PLAIN + more).settings == f"max_batch_size: 8\n{more}"
    assert shown(tmp_path, 'name: "m" backend: "python"').settings == ""


def test_what_cannot_be_read_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config.pbtxt:2.*\n*.*"):
        shown(tmp_path, 'name: "m"\nmax_batch: 3\n')
    (tmp_path / "m" / "config.pbtxt").unlink()
    with pytest.raises(UsageError, match=r"it has no config\.pbtxt"):
        show_entry(tmp_path / "m")
    with pytest.raises(UsageError, match="no such folder"):
        show_entry(tmp_path / "gone")


def test_steps_of_an_ensemble_are_told_with_their_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_entry(shown(tmp_path, CHAIN.replace('"left"', '"[bold]left:smile:"')))  # names are no markup
    told = capsys.readouterr().out
    assert [step.model for step in shown(tmp_path, CHAIN).steps] == ["left", "right", "both"]
    assert all(each in told for each in ("[bold]left:smile:", "FP32[3]", "x ← a", "l ← b", "y → d", "newest", "│ 3 "))
