"""New entries: atomic, accepted by `check_entry`, and loaded by the real Triton as intended."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from tidegate.errors import UsageError
from tidegate.findings import errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.configure import Options
from tidegate.triton.entries.detect import Framework
from tidegate.triton.entries.entry import read_entry
from tidegate.triton.entries.write import NewEntry, new_entry

from lab.local_plane.process import CannotBeHadError
from lab.local_plane.triton import installed, triton
from tests.client.triton.entries.files import FILES

DOUBLE = FILES / "double.py"
SERVED = "class TritonPythonModel:\n    def execute(self, requests): return []\n"
COMPLETING = SERVED + "    @staticmethod\n    def auto_complete_config(config): return config\n"
TENSORS = Options(inputs=["x:FP32:3"], outputs=["y:FP32:3"])
SCRIPT = Options(inputs=["image:FP32:-1,3", "mask:FP32:-1,2"], outputs=["OUTPUT__0:FP32:-1,2", "OUTPUT__1:FP32:-1,2"])
MADE: tuple[tuple[str, Framework, Options], ...] = (
    ("net.onnx", Framework.ONNX, Options(max_batch_size=8)),
    ("script.pt", Framework.TORCHSCRIPT, SCRIPT),
    ("net.plan", Framework.TENSORRT, Options()),
    ("double.py", Framework.PYTHON, TENSORS),
    ("completing.py", Framework.PYTHON, Options()),
    ("openvino.xml", Framework.OPENVINO, Options(max_batch_size=8)),
    ("xgboost_multi.json", Framework.XGBOOST_JSON, Options()),
    ("lightgbm_multi.txt", Framework.LIGHTGBM, Options()),
    ("treelite_forest.tl", Framework.TREELITE, Options()),
)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a directory with models of the frameworks that have no file among ours."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "net.plan").write_text("ptrt")
    (folder / "completing.py").write_text(COMPLETING)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy")
    onnx.save(
        helper.make_model(helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])),
        folder / "net.onnx",
    )
    return folder


def make(name: str, source: Path, parent: Path, options: Options = TENSORS, **more: Any) -> NewEntry:
    return new_entry(name, source, parent, options, **more)


@pytest.mark.parametrize(("source", "framework", "options"), MADE, ids=[case[0] for case in MADE])
def test_an_entry_of_every_framework_is_accepted(
    tmp_path: Path, sources: Path, source: str, framework: Framework, options: Options
) -> None:
    place = FILES / source if (FILES / source).exists() else sources / source
    made = make("made", place, tmp_path / "repository", options)
    assert made.framework is framework
    entry = read_entry(made.folder)
    assert not errors(check_entry(entry))
    assert entry.versions == (1,)
    assert entry.config == made.config
    assert entry.config.name == "made"
    assert entry.files_of(1), "the version's folder has the model"


def test_files_arrive_byte_for_byte_and_can_be_read_by_a_server(tmp_path: Path) -> None:
    made = make("made", FILES / "script.pt", tmp_path, SCRIPT)
    assert (made.folder / "1" / "model.pt").read_bytes() == (FILES / "script.pt").read_bytes()
    assert made.folder.stat().st_mode & 0o777 == 0o755
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "model.py").symlink_to(DOUBLE)
    alone = make("alone", tmp_path / "served", tmp_path / "repository")
    assert not (alone.folder / "1" / "model.py").is_symlink()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    made = make("made", DOUBLE, tmp_path)
    before = (made.folder / "config.pbtxt").stat()
    with pytest.raises(UsageError, match="not overwritten\n  do: remove it"):
        make("made", DOUBLE, tmp_path, Options(inputs=["z:FP32:1"], outputs=["y:FP32:3"]))
    assert (made.folder / "config.pbtxt").stat() == before
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match="not overwritten"):
        make("dangling", DOUBLE, tmp_path)


def test_an_entry_that_comes_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        (target / "1").mkdir(parents=True)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(UsageError, match="not overwritten"):
        make("made", DOUBLE, tmp_path)
    assert os.listdir(tmp_path) == ["made"]
    assert os.listdir(tmp_path / "made") == ["1"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidegate.triton.entries.write.config_text", full)
    with pytest.raises(OSError, match="No space left"):
        make("made", DOUBLE, tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_entry_that_triton_would_refuse_is_not_written(tmp_path: Path) -> None:
    gap = Options(["image__0:FP32:3", "mask__2:FP32:2"], SCRIPT.outputs)
    with pytest.raises(UsageError, match=r"Triton would refuse this entry[^$]*config.pbtxt:\d+: error: "):
        make("made", FILES / "script.pt", tmp_path, gap)
    with pytest.raises(UsageError, match="too large"):
        make("made", DOUBLE, tmp_path, Options(["x:FP32:99999999999999999999"], TENSORS.outputs))
    with pytest.raises(UsageError, match="it does not exist"):
        make("other", tmp_path / "gone", tmp_path, framework=Framework.ONNX)
    assert os.listdir(tmp_path) == []


def test_a_framework_can_be_chosen_and_possible_batches_are_suggested(tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes(b"?")
    assert make("made", tmp_path / "engine", tmp_path, framework=Framework.TENSORRT).framework is Framework.TENSORRT
    for name, options, offered in (("a", Options(), True), ("b", Options(max_batch_size=2), False)):
        notes = make(name, FILES / "openvino.xml", tmp_path, options).notes
        assert any("--max-batch-size" in note for note in notes) is offered


def test_a_real_triton_loads_a_written_entry_unchanged_and_it_predicts(tmp_path: Path) -> None:
    try:
        installed()
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: THERE IS NO TRITON HERE ({error}), so none loaded the entries of `tidegate model new`.")
    repository, given = tmp_path / "repository", np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    options = Options(["raw:FP32:3"], ["doubled:FP32:3"], 8, dynamic_batching=True)
    made = make("batched", DOUBLE, repository, options)
    with triton(tmp_path / "triton", repository) as server, grpc.InferenceServerClient(server.grpc) as client:
        theirs = client.get_model_config("batched").config
        theirs.dynamic_batching.ClearField("preferred_batch_size")  # Triton's default
        for field, message in made.config.ListFields():
            assert message == getattr(theirs, field.name), field.name
        tensor = grpc.InferInput("raw", [2, 3], "FP32")
        tensor.set_data_from_numpy(given)
        assert (client.infer("batched", [tensor]).as_numpy("doubled") == given * 2).all()
