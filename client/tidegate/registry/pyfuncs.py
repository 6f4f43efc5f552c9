"""The two models that MLflow sees of a version, logged as code: an empty one with the files, and the client model."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from ..calling import MODEL_SCRIPT
from ..errors import UsageError, install
from .server import quiet

EMPTY_SCRIPT: Final = Path(__file__).with_name("empty_model.py")
CONTEXT: Final = "model_context"
REQUIREMENTS: Final = ("numpy", "pandas", "tritonclient>=2.70", "urllib3>=2")
"""What the client model needs beside MLflow and the code that goes with it."""
CODE: Final = ("__init__.py", "errors.py", "names.py", "calling/*.py")
"""The part of this package that calls models: it goes with the client model, so that endpoints need not install it."""


def empty_model() -> dict[str, bytes]:
    """Return the files of the empty model by their paths."""
    return _saved(python_model=str(EMPTY_SCRIPT), pip_requirements=[_mlflow()])


def client_model(context: dict[str, str]) -> dict[str, bytes]:
    """Return the files of the client model by their paths."""
    package = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
        file = Path(scratch, f"{CONTEXT}.json")
        file.write_text(json.dumps(context, indent=2), "utf-8")
        code = Path(scratch, package.name)
        for source in (found for pattern in CODE for found in package.glob(pattern)):
            copy = code / source.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        return _saved(
            python_model=str(MODEL_SCRIPT),
            artifacts={CONTEXT: str(file)},
            code_paths=[str(code)],
            pip_requirements=[_mlflow(), *REQUIREMENTS],
        )


def _saved(**options: Any) -> dict[str, bytes]:
    try:
        import mlflow.pyfunc
    except ImportError as error:
        what = "registering needs pandas, which MLflow's own models need"
        raise UsageError(what, why=str(error), do=install("pandas")) from None
    with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch, quiet():
        folder = Path(scratch, "model")
        mlflow.pyfunc.save_model(folder, **options)
        return {
            file.relative_to(folder).as_posix(): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and "__pycache__" not in file.parts
        }


def _mlflow() -> str:
    import mlflow

    return f"mlflow-skinny=={mlflow.__version__}"
