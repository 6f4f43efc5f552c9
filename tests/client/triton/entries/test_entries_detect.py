"""Which framework a model is of."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.detect import READERS, Framework, detect

from tests.client.triton.entries.files import FILES

SERVED = "class TritonPythonModel:\n    def execute(self, requests): return []\n"
WRITTEN: tuple[tuple[str, str | bytes, Framework], ...] = (
    ("any.plan", b"\x00\x01", Framework.TENSORRT),
    ("engine.bin", b"ftrt\x00\x00", Framework.TENSORRT),
    ("any.onnx", b"\x08\x08", Framework.ONNX),
    ("named.py", "from served import TritonPythonModel\n", Framework.PYTHON),
)
WRITTEN += tuple(
    ("forest.model", (FILES / name).read_bytes(), kind)
    for name, kind in (("xgboost_multi.json", Framework.XGBOOST_JSON), ("xgboost_multi.ubj", Framework.XGBOOST_UBJSON))
)
REFUSED: tuple[tuple[str, bytes, str], ...] = (
    ("forest.pkl", b"\x80\x04.", "treelite.sklearn.import_model"),
    ("forest.joblib", b"x\x9c", "treelite.sklearn.import_model"),
    ("forest.model", pickle.dumps({"a": 1}), "treelite.sklearn.import_model"),
    ("plain.py", b"print('hello')\n", "TritonPythonModel"),
    ("other.py", b"from mine import Module\nclass Net(Module):\n    pass\n", "TritonPythonModel"),
    ("what.xyz", b"abc", "--framework"),
    ("empty.json", b"{}", "--framework"),
)


@pytest.mark.parametrize(("name", "content", "framework"), WRITTEN, ids=[name for name, _, _ in WRITTEN])
def test_files_are_told_by_content_or_name(
    tmp_path: Path, name: str, content: str | bytes, framework: Framework
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert detect(tmp_path / name)[0] is framework


@pytest.mark.parametrize(("name", "content", "advice"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_what_triton_cannot_serve_is_refused_with_advice(
    tmp_path: Path, name: str, content: bytes, advice: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        detect(tmp_path / name)
    assert advice in str(caught.value)


def test_a_pickle_is_never_loaded_and_a_program_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    for name in ("trap.pkl", "trap.pt", "trap.bin"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(UsageError):
            detect(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(Trap()))
        archive.writestr("m/code/__torch__.py", "")
    assert READERS[detect(tmp_path / "script.pt")[0]](tmp_path / "script.pt").missing
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n{SERVED}")
    assert READERS[detect(tmp_path / "folder")[0]](tmp_path / "folder").files
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_model_to_make_an_entry_of_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "config.pbtxt").write_text("")
    for source, words in (
        (tmp_path / "model.onnx", "it is no file"), (tmp_path / "entry", "tidegate model check"),
        (tmp_path / "nothing", "no such file or folder"), (FILES / "weights.pt", "never loaded"),
        (FILES / "legacy.pt", "never loaded"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            detect(source)


def test_a_folder_is_what_the_one_model_in_it_is_and_programs_take_it_whole(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("…")
    with pytest.raises(UsageError, match="nothing tells"):
        detect(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"\x08")
    assert detect(tmp_path) == (Framework.ONNX, tmp_path / "net.onnx")
    (tmp_path / "net.plan").write_bytes(b"ptrt")
    with pytest.raises(UsageError, match=r"several models.*\n.*net.onnx, .*net.plan"):
        detect(tmp_path)
    (tmp_path / "model.py").write_text(SERVED)
    assert detect(tmp_path) == (Framework.PYTHON, tmp_path)
