"""What is exported: a model of MLflow's or a file, loaded by its own library; what runs code, only if it is trusted."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError, install
from ...registry.server import Server, quiet
from ..entries.detect import Framework, detect, is_pickle

_REGISTRY: Final = re.compile(r"(models|runs):/")
_FLAVORS: Final = {"xgboost": "xgboost", "lightgbm": "lightgbm", "pytorch": "torch", "sklearn": "sklearn"}
"""Libraries by MLflow's names; the first that a model has counts, as wrappers may have that of scikit-learn too."""

_LIBRARIES: Final = {*_FLAVORS.values(), "joblib", "onnxmltools", "onnxruntime", "onnxscript", "pandas", "skl2onnx"}


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
        said = " ".join(str(error).split())[:400]
        raise UsageError(what, where=where, why=f"{type(error).__name__}: {said}", do=do) from None


def load(source: str, scratch: Path, *, trusted: bool) -> Source:
    """Load a model from MLflow (`models:/…`, `runs:/…`, a folder with MLmodel), or from a file. Raises TidegateError.

    What MLflow has is fetched into the folder `scratch`. `trusted`: a pickle is loaded, whose code then runs.
    """
    path = Path(source)
    if _REGISTRY.match(source):
        import mlflow.artifacts

        server = Server(None, None)
        scratch.mkdir()
        with server.doing(f"{source} cannot be fetched"), quiet():
            path = Path(mlflow.artifacts.download_artifacts(source, dst_path=str(scratch), tracking_uri=server.uri))
    return _flavor(path, source, trusted) if (path / "MLmodel").is_file() else _file(path, source, trusted)


def _flavor(folder: Path, where: str, trusted: bool) -> Source:
    from mlflow.models import Model

    with failing("this is no model of MLflow's that can be read", where):
        said = Model.load(str(folder))
        example = said.load_input_example(str(folder)) if said.saved_input_example_info else None
    flavor = next((each for each in ("onnx", *_FLAVORS) if each in said.flavors), None)
    if flavor is None:
        do = f"there are exporters for the flavors {', '.join(_FLAVORS)}; `tidegate model new` takes other models"
        raise UsageError(f"it has the flavors {', '.join(said.flavors)}", where=where, do=do)
    own = (folder / str(said.flavors[flavor].get("data", flavor)), *folder.glob("data/model.*"))
    for file in filter(Path.is_file, own):  # In its library's own format MLflow is not needed to load it.
        if (kind := _kind(file)) in _LOADERS:
            return _loaded(kind, file, where, trusted, example)
    _check_trusted(where, trusted)
    import mlflow

    with failing("MLflow cannot load it", where, _FLAVORS[flavor]):
        return Source(getattr(mlflow, flavor).load_model(str(folder)), _FLAVORS[flavor], example)


def _file(file: Path, where: str, trusted: bool) -> Source:
    if file.is_file() and is_pickle(file):
        _check_trusted(where, trusted)
        with failing("it cannot be loaded", where):
            import joblib

            model = joblib.load(file)
        name = type(model).__module__.partition(".")[0]
        return Source(model, name if name in _FLAVORS.values() else "sklearn")
    if not file.exists():
        raise UsageError("there is no such file or folder", where=where)
    if (kind := _kind(file)) not in _LOADERS:
        do = "there are exporters for scikit-learn, XGBoost, LightGBM, PyTorch; `tidegate model new` takes other models"
        raise UsageError("nothing exports this", where=where, why=f"it is {kind}" if kind else "", do=do)
    return _loaded(kind, file, where, trusted)


def _loaded(kind: str, file: Path, where: str, trusted: bool, example: Any = None) -> Source:
    name, load_file = _LOADERS[kind]
    if kind == ".pt2":  # torch.export.load falls back to pickle for what it cannot read otherwise
        _check_trusted(where, trusted, "it may hold a pickle")
    with failing(f"{name} cannot load it", where, name):
        return Source(load_file(file), name, example)


def _kind(file: Path) -> str:
    """Return what a file is, by what it holds; nothing where that cannot be told."""
    with suppress(UsageError):
        return ".pt2" if file.suffix == ".pt2" else detect(file)[0]
    return ""


def _xgboost(file: Path) -> Any:
    """Return the model as scikit-learn has it, which tells classes from probabilities."""
    import xgboost

    saved = json.loads(xgboost.Booster(model_file=str(file)).save_config())
    is_classifier = saved["learner"]["objective"]["name"].startswith(("binary:", "multi:"))
    model = xgboost.XGBClassifier() if is_classifier else xgboost.XGBRegressor()
    model.load_model(file)
    return model


def _lightgbm(file: Path) -> Any:
    import lightgbm

    return lightgbm.Booster(model_file=str(file))


def _torch(file: Path) -> Any:
    import torch

    return torch.export.load(file) if file.suffix == ".pt2" else torch.jit.load(str(file), map_location="cpu")


_LOADERS: Final[dict[str, tuple[str, Callable[[Path], Any]]]] = {
    Framework.XGBOOST_JSON: ("xgboost", _xgboost),
    Framework.XGBOOST_UBJSON: ("xgboost", _xgboost),
    Framework.LIGHTGBM: ("lightgbm", _lightgbm),
    Framework.TORCHSCRIPT: ("torch", _torch),
    ".pt2": ("torch", _torch),
    Framework.ONNX: ("onnx", lambda file: file),
}


def _check_trusted(where: str, trusted: bool, what: str = "it is a pickle") -> None:
    if not trusted:
        what = f"{what}, and loading a pickle runs whatever code is in it, with all that you may do"
        raise UsageError(what, where=where, do="where you know who wrote it, and trust them, say --trusted")
