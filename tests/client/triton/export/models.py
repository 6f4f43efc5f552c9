"""Small trained models, made with libraries of a separate environment, and their export."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from typer.testing import CliRunner, Result

from lab.local_plane.process import CannotBeHadError
from lab.local_plane.wheels import environment, site_packages

GLIBC = (2, 28)
FEATURES = 5
CLASSES = numpy.array(["calm", "storm", "swell"])
ROWS = numpy.random.default_rng(5).normal(size=(120, FEATURES))
TARGETS = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.5)


def have_exporters() -> Path:
    """Add the libraries to this process's path and return their directory, or skip the tests."""
    try:
        packages = site_packages(environment("export", "exporters (scikit-learn)", GLIBC))
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: THE EXPORTERS CANNOT BE INSTALLED HERE ({error}), so no test exported a model.")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    return packages


def export(*words: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, words)])


def refused(tmp_path: Path, *words: object, code: ExitCode = ExitCode.USAGE) -> str:
    """Run an export that must be refused and leave nothing behind. Return the message."""
    before = sorted(tmp_path.rglob("*"))
    done = export(*words[:1], tmp_path / "new" / "made", *words[1:])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    assert sorted(tmp_path.rglob("*")) == before
    return done.stderr


def sample(folder: Path, rows: Any = ROWS[:40]) -> Path:
    file = folder / "sample.npy"
    numpy.save(file, rows)
    return file


def saved(model: Any, folder: Path, **more: Any) -> Path:
    """Save a scikit-learn model as MLflow does, pickled. Return its directory."""
    import mlflow.sklearn

    mlflow.sklearn.save_model(
        model, str(folder), serialization_format="cloudpickle", pip_requirements=["scikit-learn"], **more
    )
    return folder


def trained(folder: Path) -> Path:
    """Save a classifier as MLflow does, with skops, which needs no trust. Return its directory."""
    import mlflow.sklearn
    from sklearn.linear_model import LogisticRegression

    model, to = LogisticRegression().fit(ROWS, TARGETS), folder / "trained"
    mlflow.sklearn.save_model(model, str(to), serialization_format="skops", pip_requirements=["skops"])
    return to


def write_onnx(file: Path, nodes: Sequence[onnx.NodeProto], given: str) -> Path:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", FEATURES]) for name in (given, "OUT")]
    graph = helper.make_graph(nodes, "rows", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file
