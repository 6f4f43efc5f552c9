"""Detects the framework of a model by its file's name. The framework's reader then reads the content."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ...errors import UsageError
from .frameworks import fil, onnx, openvino, python, tensorrt, torch
from .frameworks.reading import Reading
from .text import CONFIG


class Framework(StrEnum):
    """The values of `--framework`."""

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
"""The reader of each framework's files."""

_SUFFIXES = {
    ".onnx": Framework.ONNX, ".pt": Framework.TORCHSCRIPT, ".pth": Framework.TORCHSCRIPT, ".plan": Framework.TENSORRT,
    ".engine": Framework.TENSORRT, ".trt": Framework.TENSORRT, ".py": Framework.PYTHON, ".xml": Framework.OPENVINO,
    ".json": Framework.XGBOOST_JSON, ".ubj": Framework.XGBOOST_UBJSON, ".txt": Framework.LIGHTGBM,
    ".tl": Framework.TREELITE,
}  # fmt: skip
_PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".sav", ".dill"})
_PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NO_PICKLE = (
    "scikit-learn: treelite.sklearn.import_model(model).serialize('checkpoint.tl') for a forest of trees, else "
    "skl2onnx.to_onnx(model, sample), for a classifier with options={'zipmap': False}, or a model.py for the Python "
    "backend"
)


def detect(source: Path, framework: Framework | None = None) -> Framework:
    """Return the framework of a model's file, or of a directory with a program. Runs nothing. Raises UsageError, with a
    remedy, for a model of an unknown framework, or one that cannot be served as it is."""
    if not source.exists():
        raise UsageError("it does not exist", where=source)
    if (source / CONFIG).is_file():
        raise UsageError("it is an entry already", where=source, do="run `tidegate model check` on it")
    if not source.is_file() and not (source / python.PROGRAM).is_file():
        what = f"neither a file nor a directory with a {python.PROGRAM}"
        raise UsageError(what, where=source, do="name a model's file")
    if framework is not None or source.is_dir():
        return framework or Framework.PYTHON
    suffix = source.suffix.lower()
    with source.open("rb") as opened:
        is_pickle = opened.read(2) in _PICKLED or suffix in _PICKLES
    if is_pickle:
        what = "pickles are never loaded, here or in Triton, because that runs any code in them"
        is_torch = suffix in (".pt", ".pth", ".bin", ".ckpt")
        raise UsageError(what, where=source, do=torch.NO_SCRIPT if is_torch else _NO_PICKLE)
    if suffix not in _SUFFIXES:
        what = "its name does not show its framework"
        do = f"use its framework's suffix ({', '.join(_SUFFIXES)}), or pass --framework, one of {', '.join(Framework)}"
        raise UsageError(what, where=source, do=f"{do}. For another backend, write config.pbtxt yourself")
    return _SUFFIXES[suffix]
