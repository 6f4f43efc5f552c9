"""What is exported: a model of MLflow's or a file, loaded by its own library; what runs code, only if it is trusted."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError, install
from ...registry.fetching import ADDRESS, fetched
from ...registry.server import quiet
from ..entries.detect import Framework, detect, is_pickle

_FLAVORS: Final = {"xgboost": "xgboost", "lightgbm": "lightgbm", "pytorch": "torch", "sklearn": "sklearn"}
"""Libraries by MLflow's names; the first that a model has counts, as wrappers may have that of scikit-learn too."""

_LIBRARIES: Final = {
    *_FLAVORS.values(), "joblib", "onnxmltools", "onnxruntime", "onnxscript", "pandas", "skl2onnx", "skops"
}  # fmt: skip
LOCALE: Final = "C.UTF-8"
"""For texts whose letters are lowered: Linux images have it, and seldom ONNX Runtime's own, en_US.UTF-8."""
OTHERWISE: Final = (
    "leave to the callers what its exporter does not know, or serve the model as it is, by a program for Triton's "
    "Python backend, or trees by its FIL backend where that knows them: tidegate model new --help"
)
_LOADING: Final = (
    "have the libraries here in the versions that saved it, and name the folder of modules of your own in PYTHONPATH"
)
_EXPORTED: Final = (
    "there are exporters for scikit-learn, XGBoost (as save_model writes it), LightGBM and PyTorch; `tidegate model "
    "new` takes other models"
)


@dataclass(frozen=True)
class Source:
    """A model as its library has it; of ONNX, its file."""

    model: Any
    library: str  # its module: sklearn, xgboost, lightgbm, torch; or onnx
    example: Any = None  # the inputs that MLflow keeps beside it, where it does


@contextmanager
def failing(what: str, where: str, library: str = "", do: str = "") -> Iterator[None]:
    """Turn whatever is raised into a UsageError: each library has errors of its own, and loaded models any at all.

    What of `library` is not installed is told with the client's extra that has it.
    """
    try:
        with quiet():
            yield
    except UsageError:
        raise
    except Exception as error:
        lacking = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if lacking in _LIBRARIES:
            do = install(library if library in _FLAVORS.values() else "sklearn")
            raise UsageError(f"exporting this needs {lacking}", where=where, why=str(error), do=do) from None
        said = " ".join(str(error).split()).partition(" Stack trace:")[0][:400]
        if "Failed to construct locale" in said:
            do = f"the system must have the locale {LOCALE}, here and where the model is served"
        raise UsageError(what, where=where, why=f"{type(error).__name__}: {said or 'no more is said'}", do=do) from None


def load(source: str, scratch: Path, *, trusted: bool) -> Source:
    """Load a model from MLflow (`models:/…`, `runs:/…`, a folder with MLmodel), or from a file. Raises TidegateError.

    What MLflow has is fetched into the folder `scratch`. `trusted`: pickles and TorchScript, whose code runs, too.
    """
    path = fetched(source, scratch) if ADDRESS.match(source) else Path(source)
    found = _flavor(path, source, trusted) if (path / "MLmodel").is_file() else _file(path, source, trusted)
    if found.library == "xgboost":
        return replace(found, model=_estimator(found.model, source))
    if not any(hasattr(found.model, each) for each in ("predict", "transform")) and found.library == "sklearn":
        do = "save the fitted model itself, such as joblib.dump(model, FILE)"
        raise UsageError(f"this is no model, but a {type(found.model).__name__}", where=source, do=do)
    return found


def _flavor(folder: Path, where: str, trusted: bool) -> Source:
    from mlflow.models import Model

    with failing("this is no model of MLflow's that can be read", where):
        said = Model.load(str(folder))
        example = said.load_input_example(str(folder)) if said.saved_input_example_info else None
    flavor = next((each for each in ("onnx", *_FLAVORS) if each in said.flavors), None)
    if flavor is None:
        do = f"there are exporters for the flavors {', '.join(_FLAVORS)}; `tidegate model new` takes other models"
        raise UsageError(f"it has the flavors {', '.join(said.flavors)}", where=where, do=do)
    about = said.flavors[flavor]
    own = (folder / str(about.get("data", about.get("pickled_model", flavor))), *folder.glob("data/model.*"))
    for file in filter(Path.is_file, own):  # In its library's own format MLflow is not needed to load it.
        if (kind := _kind(file)) in _LOADERS:
            return _loaded(kind, file, where, trusted, example)
    _check_trusted(where, trusted)
    import mlflow

    with failing("MLflow cannot load it", where, _FLAVORS[flavor], _LOADING):
        return Source(getattr(mlflow, flavor).load_model(str(folder)), _FLAVORS[flavor], example)


def _file(file: Path, where: str, trusted: bool) -> Source:
    if not file.exists():
        raise UsageError("there is no such file or folder", where=where)
    if file.is_file() and not file.stat().st_size:
        raise UsageError("the file is empty", where=where, do="save the model again, or get it again")
    if file.is_file() and is_pickle(file):
        _check_trusted(where, trusted)
        with failing("it cannot be loaded", where, do=_LOADING):
            import joblib

            model = joblib.load(file)
        return Source(model, _library(model))
    if (kind := _kind(file)) not in _LOADERS:
        why = f"it is {kind}" if kind else "nothing in it tells what model it is"
        raise UsageError("nothing exports this", where=where, why=why, do=_EXPORTED)
    return _loaded(kind, file, where, trusted)


def _library(model: Any) -> str:
    name = type(model).__module__.partition(".")[0]
    return name if name in _FLAVORS.values() else "sklearn"


def _loaded(kind: str, file: Path, where: str, trusted: bool, example: Any = None) -> Source:
    name, load_file = _LOADERS[kind]
    with failing(f"{name} cannot load it", where, name, _LOADING):
        model = load_file(file, partial(_check_trusted, where, trusted))
        return Source(model, _library(model) if name == "sklearn" else name, example)


def _kind(file: Path) -> str:
    """Return what a file is, by what it holds; nothing where that cannot be told."""
    with suppress(UsageError):
        return file.suffix if file.suffix in (".pt2", ".skops") else detect(file)[0]
    return ""


def _skops(file: Path, check: Callable[..., None]) -> Any:
    import skops.io

    if types := skops.io.get_untrusted_types(file=file):
        check(f"it has types that skops does not trust ({', '.join(types)})", "it")
    return skops.io.load(file, trusted=types)


def _xgboost(file: Path, _check: Callable[..., None]) -> Any:
    import xgboost

    return xgboost.Booster(model_file=str(file))


def _estimator(model: Any, where: str) -> Any:
    """Return XGBoost's model as scikit-learn has it, which tells classes from probabilities.

    Raises UsageError where its exporter fails over such a model, or makes another one of it.
    """
    with failing("xgboost cannot read this model", where, "xgboost", "save a model that was fitted"):
        booster = model.get_booster() if hasattr(model, "get_booster") else model
        said = json.loads(booster.save_config())["learner"]
    kind, objective = said["gradient_booster"]["name"], said["objective"]["name"]
    targets = int(said["learner_model_param"].get("num_target", 1))
    odd = {
        f"its booster is {kind}": kind != "gbtree",
        f"it ranks ({objective})": objective.startswith("rank:"),
        f"it has {targets} targets": targets > 1,
    }
    if why := ", ".join(each for each, is_odd in odd.items() if is_odd):
        raise UsageError("the exporter of XGBoost does not know such a model", where=where, why=why, do=OTHERWISE)
    if booster is not model:
        return model
    import xgboost

    is_classifier = objective.startswith(("binary:", "multi:"))
    model = xgboost.XGBClassifier() if is_classifier else xgboost.XGBRegressor()
    model.load_model(booster.save_raw())
    return model


def _lightgbm(file: Path, _check: Callable[..., None]) -> Any:
    import lightgbm

    return lightgbm.Booster(model_file=str(file))


def _torch(file: Path, check: Callable[..., None]) -> Any:
    # torch.export.load falls back to pickle for files that it cannot read otherwise.
    check("it may hold a pickle" if file.suffix == ".pt2" else "it is TorchScript, which is a program", "it")
    import torch

    return torch.export.load(file) if file.suffix == ".pt2" else torch.jit.load(str(file), map_location="cpu")


_LOADERS: Final[dict[str, tuple[str, Callable[[Path, Callable[..., None]], Any]]]] = {
    Framework.XGBOOST_JSON: ("xgboost", _xgboost),
    Framework.XGBOOST_UBJSON: ("xgboost", _xgboost),
    Framework.LIGHTGBM: ("lightgbm", _lightgbm),
    Framework.TORCHSCRIPT: ("torch", _torch),
    ".pt2": ("torch", _torch),
    ".skops": ("sklearn", _skops),
    Framework.ONNX: ("onnx", lambda file, _check: file),
}
"""What loads the files of each kind; it is handed what raises UsageError where code would run that is not trusted."""


def _check_trusted(where: str, trusted: bool, what: str = "it is a pickle", that: str = "a pickle") -> None:
    if not trusted:
        what = f"{what}, and loading {that} runs whatever code is in it, with all that you may do"
        raise UsageError(what, where=where, do="where you know who wrote it, and trust them, say --trusted")
