"""Finds the backend of a model as Triton does, and checks that its files exist."""

import posixpath
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import closest, nearest
from .layout import served

TENSORRT = "tensorrt_plan"
PLATFORMS = {
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    TENSORRT: "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch",
}
ENSEMBLE = "ensemble"
DEFAULT_FILES = {
    "dali": ("model.dali", "dali.py"),
    "fil": ("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
    "onnxruntime": ("model.onnx",),
    "openvino": ("model.xml",),
    "python": ("model.py",),
    "pytorch": ("model.pt", "model.pt2"),
    "tensorrt": ("model.plan",),
    "vllm": ("model.json",),
}
"""The files that each backend looks for if the configuration names none: one of these, in the version directory."""
KNOWN = (*DEFAULT_FILES, "tensorflow", "tensorrtllm", "identity", "repeat", "square", "redis", "local")
FIL_TYPES = ("xgboost", "xgboost_json", "xgboost_ubj", "lightgbm", "treelite_checkpoint")
FIL_FILES = dict(zip(FIL_TYPES, DEFAULT_FILES["fil"], strict=True))
_NO_FOLDERS = ("model.plan", "model.pt", "model.pt2")
_STRICT = {name: [platform for platform in PLATFORMS if PLATFORMS[platform] == name] for name in PLATFORMS.values()}
"""Backends that accept only certain platforms."""
_WITHOUT_FILES = ("tensorrtllm", "identity", "repeat", "square")


class Backend(NamedTuple):
    """The backend and platform of a model: the configuration's, completed like in Triton."""

    name: str  # empty for an ensemble, and if it is unknown
    platform: str = ""


_FROM_FILE = {
    "model.plan": Backend("tensorrt", TENSORRT),
    "model.onnx": Backend("onnxruntime", "onnxruntime_onnx"),
    "model.xml": Backend("openvino"),
    "model.pt": Backend("pytorch", "pytorch_libtorch"),
    "model.py": Backend("python"),
}
"""The backend that Triton infers from a file, in Triton's order."""


def is_ensemble(config: Any) -> bool:
    """Return whether a configuration is that of an ensemble."""
    return bool(config.platform == ENSEMBLE or config.HasField("ensemble_scheduling"))


def resolved(entry: Entry) -> Backend:
    """Return the backend that Triton uses (its AutoCompleteBackendFields)."""
    config = entry.config
    name, platform, file = (config.backend, config.platform, config.default_model_filename) if config else ("", "", "")
    if platform:
        return Backend(name or PLATFORMS.get(platform, ""), platform)
    if name:
        return Backend(name, _STRICT[name][0] if name in _STRICT else "")
    found = _from_files(entry, file)
    return found if found.name or file else Backend(entry.name.partition(".")[2])


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about the backend, the platform, and the model's files."""
    backend = resolved(entry)
    if is_ensemble(config):
        if config.backend:
            yield error("an ensemble has no backend", "backend", do="remove the backend")
        return
    if not backend.name:
        yield from _unknown(backend.platform)
        return
    if backend.name in _STRICT and backend.platform not in _STRICT[backend.name]:
        platforms = " or ".join(f'"{platform}"' for platform in _STRICT[backend.name])
        what = f"platform '{backend.platform}' does not go with the {backend.name} backend"
        yield error(what, "platform", do=f"write platform: {platforms}")
    elif config.platform and PLATFORMS.get(config.platform) not in (None, backend.name):
        what, why = f"Triton ignores the platform '{config.platform}'", f"the {backend.name} backend runs the model"
        yield warning(what, "platform", why, "remove one of them")
    names = {file.path.rpartition("/")[2] for file in entry.files}
    if config.runtime not in {"", "model.py", f"libtriton_{backend.name}.so", *names}:
        why, do = "Triton loads the backend from it", "remove runtime, or add the file"
        found = error if backend.name in KNOWN else warning  # A server can have the libraries of other backends.
        yield found(f"there is no library {config.runtime}", "runtime", why, do)
    yield from _files(entry, config, backend)


def check_server(entry: Entry, config: Any, backends: Collection[str] | None) -> Iterator[Finding]:
    """Yield findings about the backend on a server that has only certain backends."""
    name = resolved(entry).name
    brings_its_own = any(file.path.split("/")[-1] == f"libtriton_{name}.so" for file in entry.files)
    if not name or is_ensemble(config) or brings_its_own:
        return
    where = "backend" if config.backend else "platform"
    if name == "tensorflow" and name not in (backends or ()):
        yield error("Triton has had no TensorFlow backend since 25.03", where, do="convert the model to ONNX (tf2onnx)")
    elif backends is None:
        if name not in KNOWN and (do := closest(name, KNOWN)):
            yield warning(f"'{name}' is not a common backend", where, do=do)
    elif name not in backends:
        do = closest(name, backends, "choose a server that has it")
        yield error(f"the server has no backend '{name}'", where, f"it has {', '.join(sorted(backends)) or 'none'}", do)


def _unknown(platform: str) -> Iterator[Finding]:
    if platform:
        do = closest(platform, [*PLATFORMS, ENSEMBLE], f"platforms are {', '.join(sorted(PLATFORMS))}")
        if platform in KNOWN:
            do = f'write backend: "{platform}" instead'
        yield error(f"'{platform}' is not a platform", "platform", do=do)
    else:
        why = "there is no backend, no platform, and no file with a known name"
        yield error("the backend of the model is unknown", "", why, 'write backend: "…"')


def _files(entry: Entry, config: Any, backend: Backend) -> Iterator[Finding]:
    named = config.default_model_filename
    if (config.cc_model_filenames and not named) or config.runtime or backend.name in _WITHOUT_FILES:
        return
    wanted = (named,) if named else _wanted(config, backend)
    for version in served(entry) if wanted else ():
        files = entry.files_of(version)
        if any(_is_there(one, files) for one in wanted):
            continue
        if named:  # JoinPath allows a path out of the version directory. An absolute path is below it too.
            path = posixpath.normpath(f"{version}/./{named}")
            if path.startswith("../"):
                what, why = f"'{named}' is not part of the entry", "it is not registered, so every server must have it"
                yield warning(what, "default_model_filename", why, "move it into the version directory")
                return
            if any(each.path == path or each.path.startswith(f"{path}/") for each in entry.files):
                continue
        near = nearest(wanted[0], files)
        why = f"the {backend.name} backend needs it" + ("" if files else ", and the directory is empty")
        do = f'rename {near} to {wanted[0]}, or write default_model_filename: "{near}"' if near else "add it"
        if (
            backend.name == "fil"
            and not named
            and (other := next((kind for kind in FIL_TYPES if FIL_FILES[kind] in files), None))
        ):
            do = f'set the parameter model_type to "{other}", or add {wanted[0]}'
        yield error(f"{' or '.join(wanted)} is missing", str(version), why, do)


def fil_type(config: Any) -> str:
    """Return the format of FIL's file. The default is the backend's (shared_state.h of fil_backend)."""
    return str(config.parameters["model_type"].string_value) if "model_type" in config.parameters else "xgboost"


def _wanted(config: Any, backend: Backend) -> tuple[str, ...]:
    if backend.name == "fil" and (kind := fil_type(config)) in FIL_FILES:
        return (FIL_FILES[kind],)
    if backend.platform == "torch_aoti":
        return ("model.pt2",)
    return DEFAULT_FILES.get(backend.name, ())


def _from_files(entry: Entry, file: str) -> Backend:
    """Return the backend of the configured file, else of the files in the first directory."""
    start = f"{entry.folders[0]}/" if entry.folders else "/"
    there = {file.path.removeprefix(start) for file in entry.files if file.path.startswith(start)}
    found = next((name for name in _FROM_FILE if (name == file if file else _is_there(name, there))), None)
    return _FROM_FILE[found] if found else Backend("")


def _is_there(wanted: str, files: set[str]) -> bool:
    is_folder = any(file.startswith(f"{wanted}/") for file in files)
    return wanted in files or (is_folder and wanted not in _NO_FOLDERS)
