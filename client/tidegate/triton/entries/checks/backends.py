"""Which backend runs a model, as Triton finds out, and whether the files that it wants are there."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate_contracts.manifest import is_inside

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import nearest
from .layout import served

PLATFORMS = {
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch",
}
"""The platforms that Triton knows, and the backend of each."""
ENSEMBLE = "ensemble"
DEFAULT_FILES = {
    "dali": ("model.dali", "dali.py"),
    "fil": ("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl"),
    "onnxruntime": ("model.onnx",),
    "openvino": ("model.xml",),
    "python": ("model.py",),
    "pytorch": ("model.pt", "model.pt2"),
    "tensorflow": ("model.savedmodel", "model.graphdef"),
    "tensorrt": ("model.plan",),
    "vllm": ("model.json",),
}
"""What each backend looks for in the folder of a version, when the configuration names no file: one of these."""
KNOWN = (*DEFAULT_FILES, "tensorrtllm", "identity", "repeat", "square", "redis", "local")
"""Backends that are commonly there."""
_FIL_FILES = {
    "xgboost": "xgboost.model", "xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj", "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}  # fmt: skip
_FROM_FILE = {
    "model.graphdef": ("tensorflow", "tensorflow_graphdef"),
    "model.savedmodel": ("tensorflow", "tensorflow_savedmodel"),
    "model.plan": ("tensorrt", "tensorrt_plan"),
    "model.onnx": ("onnxruntime", "onnxruntime_onnx"),
    "model.xml": ("openvino", ""),
    "model.pt": ("pytorch", "pytorch_libtorch"),
    "model.py": ("python", ""),
}
"""What Triton concludes from a file, in its own order."""
_FOLDERS = ("model.savedmodel",)
_NO_FOLDERS = ("model.graphdef", "model.plan", "model.pt", "model.pt2")
_STRICT = {
    "tensorflow": ("tensorflow_graphdef", "tensorflow_savedmodel"),
    "tensorrt": ("tensorrt_plan",),
    "onnxruntime": ("onnxruntime_onnx",),
    "pytorch": ("pytorch_libtorch", "torch_aoti"),
}
"""Backends that go with certain platforms only."""
_WITHOUT_FILES = ("tensorrtllm", "identity", "repeat", "square")


@dataclass(frozen=True)
class Backend:
    """What runs a model: as the configuration says, completed as Triton does."""

    name: str
    """Empty for an ensemble, and where nothing tells it."""
    platform: str


def is_ensemble(config: Any) -> bool:
    """Tell whether a configuration is that of an ensemble."""
    return bool(config.platform == ENSEMBLE or config.HasField("ensemble_scheduling"))


def resolved(entry: Entry) -> Backend:
    """Return the backend that Triton takes (its AutoCompleteBackendFields)."""
    config = entry.config
    name, platform, file = (config.backend, config.platform, config.default_model_filename) if config else ("", "", "")
    if name:
        if not platform and (name == "tensorflow" or name in _STRICT):
            platform = _tensorflow(entry, file) if name == "tensorflow" else _STRICT[name][0]
        return Backend(name, platform)
    if platform:
        return Backend(PLATFORMS.get(platform, ""), platform)
    if file in _FROM_FILE:
        return Backend(*_FROM_FILE[file])
    there = _in_first_folder(entry) if not file else set()
    found = next((found for known, found in _FROM_FILE.items() if _is_there(known, there)), None)
    if found:
        return Backend(*found)
    return Backend(entry.name.partition(".")[2] if not file else "", "")


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with the backend, the platform, and the model's files."""
    backend = resolved(entry)
    if is_ensemble(config):
        if config.backend:
            yield error("an ensemble has no backend", entry.where("backend"), do="take the backend out")
        return
    if not backend.name:
        yield from _unknown(entry, backend)
        return
    if backend.name in _STRICT and backend.platform not in _STRICT[backend.name]:
        platforms = " or ".join(f'"{platform}"' for platform in _STRICT[backend.name])
        yield error(
            f"platform '{backend.platform}' does not go with the {backend.name} backend" if backend.platform
            else "the tensorflow backend needs a platform",
            entry.where("platform" if config.platform else "backend"), do=f"write platform: {platforms}",
        )  # fmt: skip
    elif config.platform and PLATFORMS.get(config.platform) not in (None, backend.name):
        what, why = f"Triton ignores the platform '{config.platform}'", f"the {backend.name} backend runs the model"
        yield warning(what, entry.where("platform"), why, "take one of both out")
    yield from _files(entry, config, backend)


def check_server(entry: Entry, config: Any, backends: Collection[str] | None) -> Iterator[Finding]:
    """Yield what is wrong with the backend for a server that has certain backends."""
    name = resolved(entry).name
    if not name or is_ensemble(config) or _brings_its_own(entry, name):
        return
    where = entry.where("backend" if config.backend else "platform")
    if backends is None:
        near = nearest(name, KNOWN)
        if name not in KNOWN and near:
            yield warning(f"'{name}' is no common backend", where, do=f"did you mean '{near}'?")
    elif name not in backends:
        near = nearest(name, backends)
        do = f"did you mean '{near}'?" if near else "choose a server that has it"
        yield error(f"the server has no backend '{name}'", where, f"it has {', '.join(sorted(backends)) or 'none'}", do)


def _unknown(entry: Entry, backend: Backend) -> Iterator[Finding]:
    if backend.platform:
        if backend.platform in KNOWN:
            do = f'write backend: "{backend.platform}" in its place'
        else:
            near = nearest(backend.platform, [*PLATFORMS, ENSEMBLE])
            do = f"did you mean '{near}'?" if near else f"platforms are {', '.join(sorted(PLATFORMS))}"
        yield error(f"'{backend.platform}' is no platform", entry.where("platform"), do=do)
    else:
        why = "there is no backend, no platform, and no file that tells"
        yield error("nothing says which backend runs the model", entry.where(), why, 'write backend: "…"')


def _files(entry: Entry, config: Any, backend: Backend) -> Iterator[Finding]:
    named = config.default_model_filename
    if named and not is_inside(named):
        what = f"'{named}' lies outside of the version's folder"
        yield error(what, entry.where("default_model_filename"), do="write a path below it")
        return
    if (config.cc_model_filenames and not named) or config.runtime or backend.name in _WITHOUT_FILES:
        return
    wanted = (named,) if named else _wanted(config, backend)
    for version in served(entry) if wanted else ():
        files = entry.files_of(version)
        if any(_is_there(one, files) for one in wanted):
            continue
        near = nearest(wanted[0], files)
        why = f"the {backend.name} backend looks for it" + ("" if files else ", and the folder is empty")
        do = f'rename {near} to {wanted[0]}, or write default_model_filename: "{near}"' if near else "put it there"
        yield error(f"{' or '.join(wanted)} is not there", str(version), why, do)


def _wanted(config: Any, backend: Backend) -> tuple[str, ...]:
    if backend.name == "fil" and "model_type" in config.parameters:
        kind = config.parameters["model_type"].string_value
        return (_FIL_FILES[kind],) if kind in _FIL_FILES else DEFAULT_FILES["fil"]
    if backend.platform == "tensorflow_graphdef":
        return ("model.graphdef",)
    if backend.platform == "tensorflow_savedmodel":
        return ("model.savedmodel",)
    if backend.platform == "torch_aoti":
        return ("model.pt2",)
    return DEFAULT_FILES.get(backend.name, ())


def _tensorflow(entry: Entry, file: str) -> str:
    there = _in_first_folder(entry)
    names = DEFAULT_FILES["tensorflow"]
    return next((_FROM_FILE[name][1] for name in names if (name == file if file else _is_there(name, there))), "")


def _in_first_folder(entry: Entry) -> set[str]:
    start = f"{entry.folders[0]}/" if entry.folders else "/"
    return {file.path.removeprefix(start) for file in entry.files if file.path.startswith(start)}


def _is_there(wanted: str, files: set[str]) -> bool:
    """Tell whether a name is among files, as what it has to be: a file or a folder."""
    is_folder = any(file.startswith(f"{wanted}/") for file in files)
    return (wanted in files and wanted not in _FOLDERS) or (is_folder and wanted not in _NO_FOLDERS)


def _brings_its_own(entry: Entry, name: str) -> bool:
    library = f"libtriton_{name}.so"
    return any(file.path.split("/")[-1] == library for file in entry.files)
