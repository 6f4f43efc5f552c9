import os
import pickle
import zipfile
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.detect import READERS, Framework, detect

from tests.client.triton.entries.files import FILES

SERVED = "class TritonPythonModel:\n    def execute(self, requests): return []\n"
NAMES = {
    "net.onnx": Framework.ONNX, "net.pt": Framework.TORCHSCRIPT, "net.PLAN": Framework.TENSORRT,
    "net.engine": Framework.TENSORRT, "net.py": Framework.PYTHON, "net.xml": Framework.OPENVINO,
    "trees.json": Framework.XGBOOST_JSON, "trees.ubj": Framework.XGBOOST_UBJSON, "trees.txt": Framework.LIGHTGBM,
    "trees.tl": Framework.TREELITE,
}  # fmt: skip
REFUSED: tuple[tuple[str, bytes, str], ...] = (
    ("forest.pkl", b"\x80\x04.", "treelite.sklearn.import_model"),
    ("forest.joblib", b"x\x9c", "treelite.sklearn.import_model"),
    ("forest.model", pickle.dumps({"a": 1}), "treelite.sklearn.import_model"),
    ("weights.pt", b"\x80\x02.", "torch.onnx.export"),
    ("what.xyz", b"abc", "--framework"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_files_name_determines_the_framework(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    assert detect(tmp_path / name) is NAMES[name]
    assert detect(tmp_path / name, Framework.ONNX) is Framework.ONNX


@pytest.mark.parametrize(("name", "content", "advice"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_a_format_that_triton_cannot_serve_is_refused_with_a_remedy(
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
    assert READERS[detect(tmp_path / "script.pt")](tmp_path / "script.pt").missing
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n{SERVED}")
    assert READERS[detect(tmp_path / "folder")](tmp_path / "folder").files
    assert not (tmp_path / "sprung").exists()


def test_files_that_are_no_model_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "config.pbtxt").write_text("")
    for source, words in (
        (tmp_path / "model.onnx", "neither a file"), (tmp_path, "nor a directory with a model.py"),
        (tmp_path / "entry", "tidegate model check"), (tmp_path / "nothing", "it does not exist"),
        (FILES / "legacy.pt", "never loaded"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            detect(source)
