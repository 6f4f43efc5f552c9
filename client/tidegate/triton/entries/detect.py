"""Which framework a model is of: told from its content first, from its name only where the content does not tell."""

import zipfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ...errors import UsageError
from .frameworks import fil, onnx, openvino, python, tensorrt, torch
from .frameworks.reading import Reading, head, unreadable


class Framework(StrEnum):
    """What models are made with, as `--framework` takes it."""

    ONNX = "onnx"
    TORCHSCRIPT = "torchscript"
    TENSORRT = "tensorrt"
    PYTHON = "python"
    OPENVINO = "openvino"
    XGBOOST_JSON = "xgboost-json"
    XGBOOST_UBJSON = "xgboost-ubjson"
    LIGHTGBM = "lightgbm"
    TREELITE = "treelite"


READERS: dict[Framework, Callable[[Path], Reading]] = {
    Framework.ONNX: onnx.read,
    Framework.TORCHSCRIPT: torch.read_script,
    Framework.TENSORRT: tensorrt.read,
    Framework.PYTHON: python.read,
    Framework.OPENVINO: openvino.read,
    Framework.XGBOOST_JSON: fil.read_xgboost_json,
    Framework.XGBOOST_UBJSON: fil.read_xgboost_ubjson,
    Framework.LIGHTGBM: fil.read_lightgbm,
    Framework.TREELITE: fil.read_treelite,
}
"""What reads the files of each."""

_PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".sav", ".dill"})
_NO_PICKLE = (
    "scikit-learn: treelite.sklearn.import_model(model).serialize('checkpoint.tl') for a forest of trees, else "
    "skl2onnx.to_onnx(model, sample), for a classifier with options={'zipmap': False}, or a model.py for the Python "
    "backend"
)
_PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_SUFFIXES = {
    ".onnx": Framework.ONNX, ".plan": Framework.TENSORRT, ".engine": Framework.TENSORRT, ".trt": Framework.TENSORRT,
    ".ubj": Framework.XGBOOST_UBJSON, ".tl": Framework.TREELITE,
}  # fmt: skip


def detect(source: Path) -> tuple[Framework, Path]:
    """Return the framework of a file or folder, and which file or folder of it is the model; nothing of it is run.

    Raises UsageError that says what to do with a model that is of no known framework, or not to be served as it is.
    """
    if not source.exists():
        raise UsageError("there is no such file or folder", where=source)
    if source.is_dir():
        return _folder(source)
    if not source.is_file():
        raise UsageError("it is no file", where=source, do="give a file or a folder")
    return _file(source), source


def _file(file: Path) -> Framework:
    suffix, begin = file.suffix.lower(), head(file)
    if begin.startswith(tensorrt.MAGIC):
        return Framework.TENSORRT
    if begin.startswith(fil.LIGHTGBM_HEAD):
        return Framework.LIGHTGBM
    if zipfile.is_zipfile(file):
        return _archive(file)
    if suffix in (".pt", ".pth", ".bin", ".ckpt") and begin.startswith(_PICKLED):
        raise UsageError("these are pickled weights", where=file, do=torch.NO_SCRIPT)
    if suffix in _PICKLES or begin.startswith(_PICKLED):
        what = "a pickle is never loaded, here or in Triton: it would run whatever code is in it"
        raise UsageError(what, where=file, do=_NO_PICKLE)
    if suffix == ".py":
        return _program(file)
    if suffix == ".json" and (b'"learner"' in begin[:256] or b'"gradient_booster"' in begin):
        return Framework.XGBOOST_JSON
    if suffix == ".xml" and b"<net" in begin:
        return Framework.OPENVINO
    if begin[:1] == b"{" and b"learner" in begin[:64]:  # of XGBoost, whatever it is called
        return Framework.XGBOOST_JSON if begin[1:2] in b' \n\r\t"' else Framework.XGBOOST_UBJSON
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    raise _unknown(file)


def _archive(file: Path) -> Framework:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except torch.BROKEN as error:
        raise unreadable(file, "archive", error) from None
    if torch.is_script(names):
        return Framework.TORCHSCRIPT
    if any(name.endswith("data.pkl") for name in names):
        raise UsageError("these are pickled weights", where=file, do=torch.NO_SCRIPT)
    raise _unknown(file)


def _program(file: Path) -> Framework:
    if python.CLASS in python.program(file):
        return Framework.PYTHON
    do = "write a class TritonPythonModel with execute(self, requests), for the Python backend"
    raise UsageError("it has no TritonPythonModel", where=file, do=do)


def _folder(folder: Path) -> tuple[Framework, Path]:
    if (folder / "config.pbtxt").is_file():
        do = "`tidegate model check` takes it"
        raise UsageError("it is an entry already", where=folder, do=do)
    if (folder / python.PROGRAM).is_file():
        return _program(folder / python.PROGRAM), folder
    found = {file: kind for file in sorted(folder.iterdir()) if file.is_file() and (kind := _known(file))}
    if len(found) == 1:
        ((file, kind),) = found.items()
        return kind, file
    if found:
        what = "there are several models in it"
        raise UsageError(what, where=folder, do=f"give one: {', '.join(map(str, found))}")
    raise _unknown(folder)


def _known(file: Path) -> Framework | None:
    try:
        return _file(file)
    except UsageError:
        return None


def _unknown(path: Path) -> UsageError:
    what = "nothing tells what model this is"
    do = f"say --framework, one of {', '.join(Framework)}; for another backend, write config.pbtxt yourself"
    return UsageError(what, where=path, do=do)
