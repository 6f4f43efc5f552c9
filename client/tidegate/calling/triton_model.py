"""The client model, which a Domino model endpoint runs. It has no weights, but calls the model through the proxy."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy
from mlflow.pyfunc.model import PythonModel

from ..errors import UsageError
from .model import LONGEST, Model
from .proxy import SECONDS, ProxyClient, Version

CONTEXT: Final = "model_context"
"""The artifact with the name of the model to call: JSON in the format of Domino's reference implementation."""
VERSION: Final = "TIDEGATE_MODEL_VERSION"
"""The version to call. `environment` (default): the environment's shares or alias choose it, so a promotion needs no
new endpoint. `registered`: the version that this client was registered with. Or a number."""
TIMEOUT: Final = "TIDEGATE_TIMEOUT_SECONDS"  # of a call, including retries


class TritonModel(PythonModel):
    """Calls the registered model at the proxy of DOMINO_INFERENCE_PROXY."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: dict[str, str] | None = None
        self._model: Model | None = None

    def load_context(self, context: Any) -> None:
        """Read the name of the model. Sends nothing before the first call."""
        self._context = _read(Path(context.artifacts[CONTEXT]))
        self._model = None

    # MLflow does not validate inputs with an array's type hint, so `Model` gets them unchanged.
    def predict(self, context: Any, model_input: numpy.ndarray, params: Any = None) -> Any:  # noqa: ARG002
        return self._found().predict(model_input, params)

    def _found(self) -> Model:
        with self._lock:
            if self._context is None:
                do = "load it with mlflow.pyfunc.load_model"
                raise UsageError("the client model is not loaded", do=do)
            self._model = self._model or make_model(self._context)
            return self._model


def make_model(context: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Model:
    """Return the model of a context, configured by environment variables. Raises UsageError."""
    proxy = ProxyClient(seconds=_seconds(environ))
    server = context.get("inference_server_name") or None
    return Model(proxy, context["model_name"], server=server, version=_version(context, environ))


def _read(path: Path) -> dict[str, str]:
    try:
        context = json.loads(path.read_bytes())
        return {name: str(context.get(name) or "") for name in ("inference_server_name", "model_name", "model_version")}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError("the file does not name a model to call", where=str(path), why=str(error)) from None


def _version(context: Mapping[str, str], environ: Mapping[str, str]) -> Version:
    version = environ.get(VERSION, "environment")
    if version == "environment":
        return None
    number = context.get("model_version", "") if version == "registered" else version
    if not number.isdecimal() or number.startswith("0"):
        what, do = f"{version!r} is not a version", "set it to environment, registered, or a number"
        raise UsageError(what, where=VERSION, do=do)
    return number


def _seconds(environ: Mapping[str, str]) -> float:
    text = environ.get(TIMEOUT, "")
    try:
        seconds = float(text) if text else SECONDS
    except ValueError:
        seconds = 0
    if not 0 < seconds < LONGEST:
        raise UsageError(f"{text!r} is not a duration", where=TIMEOUT, do="write seconds, such as 2.5")
    return seconds
