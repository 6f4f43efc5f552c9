"""Which framework a model is of: told from its content first, from its name only where the content does not tell."""

import zipfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ...errors import UsageError
from .frameworks import dali, fil, llm, onnx, opaque, openvino, python, torch
from .frameworks.reading import Reading, head, unreadable


class Framework(StrEnum):
    """What models are made with, as `--framework` takes it."""

    ONNX = "onnx"
    TORCHSCRIPT = "torchscript"
    TORCH_PACKAGE = "torch-aoti"
    TENSORRT = "tensorrt"
    PYTHON = "python"
    OPENVINO = "openvino"
    XGBOOST_JSON = "xgboost-json"
    XGBOOST_UBJSON = "xgboost-ubjson"
    LIGHTGBM = "lightgbm"
    TREELITE = "treelite"
    DALI = "dali"
    VLLM = "vllm"
    CUSTOM = "custom"


READERS: dict[Framework, Callable[[Path], Reading]] = {
    Framework.ONNX: onnx.read,
    Framework.TORCHSCRIPT: torch.read_script,
    Framework.TORCH_PACKAGE: torch.read_package,
    Framework.TENSORRT: opaque.read_plan,
    Framework.PYTHON: python.read,
    Framework.OPENVINO: openvino.read,
    Framework.XGBOOST_JSON: fil.read_xgboost_json,
    Framework.XGBOOST_UBJSON: fil.read_xgboost_ubjson,
    Framework.LIGHTGBM: fil.read_lightgbm,
    Framework.TREELITE: fil.read_treelite,
    Framework.DALI: dali.read,
    Framework.VLLM: llm.read_vllm,
    Framework.CUSTOM: opaque.read_library,
}
"""What reads the files of each."""

_PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".sav", ".dill"})
_NO_PICKLE = (
    "scikit-learn: treelite.sklearn.import_model(model).serialize('checkpoint.tl') for a forest of trees, else "
    "skl2onnx.to_onnx(model, sample), for a classifier with options={'zipmap': False}, or a model.py for the Python "
    "backend"
)
_PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NO_TENSORFLOW = (
    "Triton has had no TensorFlow backend since 25.03: convert the model to ONNX (python -m tf2onnx.convert, or in "
    "Keras model.export('model.onnx', format='onnx'))"
)
_OTHERS = {
    **dict.fromkeys((".h5", ".keras", ".pb", ".graphdef"), _NO_TENSORFLOW),
    ".safetensors": 'weights alone say nothing: serve them by vLLM ({"model": FOLDER} in a model.json), or export ONNX',
    ".gguf": "Triton has no backend for GGUF: serve the original weights by vLLM (a model.json that names them)",
    ".cbm": "save it as ONNX: model.save_model('model.onnx', format='onnx')",
    ".tflite": "Triton has no backend for TensorFlow Lite: convert the original model to ONNX (tf2onnx)",
    ".pmml": "Triton has no backend for PMML: export ONNX, or a forest of trees as it was trained",
    ".mlmodel": "Triton has no backend for Core ML: export the original model to ONNX",
}
_SUFFIXES = {
    ".onnx": Framework.ONNX, ".plan": Framework.TENSORRT, ".engine": Framework.TENSORRT, ".trt": Framework.TENSORRT,
    ".dali": Framework.DALI, ".ubj": Framework.XGBOOST_UBJSON, ".tl": Framework.TREELITE,
    ".pt2": Framework.TORCH_PACKAGE,
}  # fmt: skip
_PROGRAMS = (python.PROGRAM, dali.PROGRAM)


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


def is_pickle(file: Path) -> bool:
    """Tell whether a file is pickled Python, by its name or its first bytes."""
    return file.suffix.lower() in _PICKLES or head(file).startswith(_PICKLED)


def _file(file: Path) -> Framework:
    suffix, begin = file.suffix.lower(), head(file)
    if opaque.LIBRARY.fullmatch(file.name):
        return Framework.CUSTOM
    if begin.startswith(opaque.PLAN_MAGIC):
        return Framework.TENSORRT
    if begin.startswith(fil.LIGHTGBM_HEAD):
        return Framework.LIGHTGBM
    if suffix in _OTHERS:
        raise UsageError("Triton cannot serve this as it is", where=file, do=_OTHERS[suffix])
    if zipfile.is_zipfile(file):
        return _archive(file)
    if suffix in (".pt", ".pth", ".bin", ".ckpt") and begin.startswith(_PICKLED):
        raise UsageError("these are pickled weights", where=file, do=torch.NO_SCRIPT)
    if is_pickle(file):
        what = "a pickle is never loaded, here or in Triton: it would run whatever code is in it"
        raise UsageError(what, where=file, do=_NO_PICKLE)
    if suffix == ".py":
        return _program(file)
    if suffix == ".json":
        return _json(file, begin)
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
    if torch.is_package(names):
        return Framework.TORCH_PACKAGE
    if any(name.endswith("data.pkl") for name in names):
        raise UsageError("these are pickled weights", where=file, do=torch.NO_SCRIPT)
    if file.suffix == ".pt2":
        do = "compile it for the target: torch._inductor.aoti_compile_and_package(program, package_path='model.pt2')"
        raise UsageError("it is an exported program, which nobody has compiled", where=file, do=do)
    raise _unknown(file)


def _program(file: Path) -> Framework:
    module = python.program(file)
    if python.is_served(module):
        return Framework.PYTHON
    if python.is_dali_pipeline(module):
        return Framework.DALI
    what = "it has neither a TritonPythonModel nor a DALI pipeline with @autoserialize"
    do = "write a class TritonPythonModel with execute(self, requests), for the Python backend"
    raise UsageError(what, where=file, do=do)


def _json(file: Path, begin: bytes) -> Framework:
    if b'"learner"' in begin[:256] or (b'"gradient_booster"' in begin):
        return Framework.XGBOOST_JSON
    if b'"model"' in begin:
        return Framework.VLLM
    raise _unknown(file)


def _folder(folder: Path) -> tuple[Framework, Path]:
    if (folder / "config.pbtxt").is_file():
        do = "`tidegate model check` takes it"
        raise UsageError("it is an entry already", where=folder, do=do)
    if (folder / "saved_model.pb").is_file():
        raise UsageError("Triton cannot serve a SavedModel", where=folder, do=_NO_TENSORFLOW)
    if opaque.library(folder):
        return Framework.CUSTOM, folder
    for name in _PROGRAMS:
        if (folder / name).is_file():
            return _program(folder / name), folder
    if (folder / llm.ARGUMENTS).is_file() and _known(folder / llm.ARGUMENTS) is Framework.VLLM:
        return Framework.VLLM, folder
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
    return UsageError(what, where=path, do=f"say --framework, one of {', '.join(Framework)}")
