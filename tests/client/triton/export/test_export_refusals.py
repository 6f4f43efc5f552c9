import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from tidegate.errors import ExitCode
from tidegate.triton.export import entry

from .models import FEATURES, ROWS, TARGETS, refused, sample, saved, trained, write_onnx


class Booby:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('the code in the pickle ran')",)


def test_a_pickle_is_not_loaded_unless_it_is_trusted(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge

    folder = saved(Ridge().fit(ROWS, TARGETS), tmp_path / "model")
    (folder / "model.pkl").write_bytes(pickle.dumps(Booby()))
    found = refused(tmp_path, folder, "--input", sample(tmp_path))
    assert "loading it runs any code in it" in found
    assert "--trusted" in found


def test_a_model_whose_module_is_not_here_or_that_is_not_fitted_is_named(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge

    words = ("--input", sample(tmp_path), "--trusted")
    folder = saved(Ridge(), tmp_path / "fresh")
    assert "NotFittedError: This Ridge instance is not fitted yet" in refused(tmp_path, folder, *words)
    (folder / "model.pkl").write_bytes(b"csteps_of_mine\nMine\n.")
    found = refused(tmp_path, folder, *words)
    assert "No module named 'steps_of_mine'" in found
    assert "add the directory of your modules to PYTHONPATH" in found


def test_an_unsupported_model_is_reported_with_the_librarys_reason(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = make_pipeline(FunctionTransformer(numpy.sinh), Ridge()).fit(ROWS, TARGETS)
    message = refused(tmp_path, saved(model, tmp_path / "model"), "--input", sample(tmp_path), "--trusted")
    assert "this model of sklearn cannot be exported" in message
    assert "FunctionTransformer" in message
    assert "tidegate model new" in message


def test_rows_that_json_cannot_hold_are_no_golden_request(tmp_path: Path) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = saved(HistGradientBoostingRegressor(max_iter=2).fit(ROWS, TARGETS), tmp_path / "model")
    rows = sample(tmp_path, numpy.full((2, FEATURES), numpy.nan))
    assert "no row can be a golden request" in refused(tmp_path, model, "--input", rows, "--trusted")


def test_a_model_whose_answers_depend_on_the_rest_of_their_batch_has_no_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_mean(source: Any, sample: Any, file: Path, where: str) -> Any:  # noqa: ARG001
        nodes = [
            onnx.helper.make_node("ReduceMean", ["X"], ["mean"], axes=[0], keepdims=1),
            onnx.helper.make_node("Sub", ["X", "mean"], ["OUT"]),
        ]
        write_onnx(file, nodes, "X")
        return sample

    monkeypatch.setattr(entry, "convert", without_mean)
    monkeypatch.setattr(entry, "ask_original", lambda *_: [(ROWS[:40] - ROWS[:40].mean(axis=0)).astype(numpy.float32)])
    message = refused(tmp_path, trained(tmp_path), "--input", sample(tmp_path), code=ExitCode.FOUND)
    assert "differently than the original in a batch of 1" in message
    assert "pass --max-batch-size 0" in message


def test_a_flavor_of_mlflow_without_an_exporter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for flavor, do in (
        ("prophet", "only sklearn models"),
        ("pytorch", "torch.onnx.export"),
        ("lightgbm", "save_model"),
    ):
        (tmp_path / "model/MLmodel").write_text(f"flavors:\n  {flavor}: {{}}\n")
        message = refused(tmp_path, tmp_path / "model", "--input", sample(tmp_path))
        assert f"it has the flavors {flavor}" in message
        assert do in message


@pytest.mark.parametrize("missing", ["skops", "skl2onnx", "onnxruntime"])
def test_a_missing_library_is_reported_with_its_extra(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, rows = trained(tmp_path), sample(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    message = refused(tmp_path, file, "--input", rows)
    assert f"exporting this needs {missing}" in message
    assert 'pip install "./client[sklearn]"' in message


def sparse(folder: Path) -> Path:
    from scipy import sparse

    sparse.save_npz(folder / "rows.npz", sparse.csr_matrix(ROWS))
    return folder / "rows.npz"


def written(name: str, content: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def broken(folder: Path) -> Path:
    (trained(folder) / "model.skops").write_text("hello")
    return folder / "trained"


def of(rows: Any) -> Callable[[Path], Path]:
    return lambda folder: sample(folder, rows)


Given = Callable[[Path], Path]


@pytest.mark.parametrize(
    ("source", "given", "words", "message"),
    [
        (trained, sparse, (), "convert sparse matrices (matrix.toarray())"),
        (trained, of(ROWS[:3, :2]), (), "the model does not answer these inputs"),
        (trained, of(numpy.full((2, FEATURES), numpy.nan)), (), "the model does not answer these inputs"),
        (trained, of(numpy.zeros((0, FEATURES))), (), "at least one"),
        (trained, of(numpy.float32(1)), (), "at least one"),
        (
            trained,
            written("two.json", '{"a": [[1], [2]], "b": [[1]]}'),
            (),
            "these inputs cannot be converted to tensors",
        ),
        (trained, None, (), "no inputs to compare"),
        (trained, lambda folder: folder / "none.npy", (), "cannot be read"),
        (trained, sample, ("--name", "a b"), "'a b' is not a valid name of a model"),
        *((trained, sample, ("--tolerance", each), "--tolerance") for each in ("nan", "inf", "-1", "much")),
        (lambda folder: folder / "none", sample, (), "not a directory of MLflow"),
        (written("model.txt", "hello"), sample, (), "not a directory of MLflow"),
        (broken, sample, (), "sklearn cannot load it"),
    ],
)
def test_contradictions_are_refused(
    tmp_path: Path, source: Given, given: Given | None, words: tuple[str, ...], message: str
) -> None:
    inputs = () if given is None else ("--input", given(tmp_path))
    assert message in refused(tmp_path, source(tmp_path), *inputs, *words)


def test_an_existing_directory_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "new" / "made").mkdir(parents=True)
    assert "is not overwritten" in refused(tmp_path, trained(tmp_path), "--input", sample(tmp_path))
