"""What cannot be exported is one message and an exit code, and leaves nothing behind."""

import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from tidegate.errors import ExitCode
from tidegate.triton.export import entry

from .models import FEATURES, ROWS, TARGETS, boosted, refused, sample, saved, write_onnx


class Booby:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('the code in the pickle ran')",)


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.bin"])
def test_a_pickle_is_not_loaded_unless_it_is_trusted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Booby()))
    said = refused(tmp_path, tmp_path / name, "--input", sample(tmp_path))
    assert "loading a pickle runs whatever code is in it" in said
    assert "--trusted" in said


def test_a_pickle_within_mlflow_is_not_loaded_unless_it_is_trusted(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge

    folder = saved(Ridge().fit(ROWS, TARGETS), tmp_path / "model")
    (folder / "model.pkl").write_bytes(pickle.dumps(Booby()))
    assert "it is a pickle" in refused(tmp_path, folder, "--input", sample(tmp_path))


def away(folder: Path) -> Any:
    """Return a model whose class is in a module that nobody finds later."""
    (folder / "steps_of_mine.py").write_text("class Mine:\n    predict = None\n")
    sys.path.insert(0, str(folder))
    try:
        import steps_of_mine  # type: ignore[import-not-found]

        return steps_of_mine.Mine()
    finally:
        sys.path.remove(str(folder))


def fresh(_folder: Path) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge()


@pytest.mark.parametrize(
    ("make", "said", "do"),
    [
        (lambda _: {"a": 1}, "this is no model, but a dict", "save the fitted model itself"),
        (fresh, "NotFittedError: This Ridge instance is not fitted yet", "the model must be fitted"),
        (away, "No module named 'steps_of_mine'", "name the folder of modules of your own in PYTHONPATH"),
        (None, "the file is empty", "save the model again"),
    ],
    ids=["dict", "not-fitted", "module-of-ones-own", "empty"],
)
def test_what_a_pickle_holds_in_place_of_a_model_that_answers_is_said(
    make: Callable[[Path], Any] | None, said: str, do: str, tmp_path: Path
) -> None:
    (tmp_path / "model.pkl").write_bytes(b"" if make is None else pickle.dumps(make(tmp_path)))
    sys.modules.pop("steps_of_mine", None)
    found = refused(tmp_path, tmp_path / "model.pkl", "--input", sample(tmp_path), "--trusted")
    assert said in found
    assert f"do: {do}" in found or do in found.partition("do: ")[2]


@pytest.mark.parametrize(
    ("settings", "targets", "said"),
    [
        ({"booster": "gblinear"}, 1, "its booster is gblinear"),
        ({"booster": "dart"}, 1, "its booster is dart"),
        ({}, 2, "it has 2 targets"),
        ({"multi_strategy": "multi_output_tree"}, 2, "it has 2 targets"),
        ({"objective": "rank:pairwise"}, 1, "it ranks (rank:pairwise)"),
    ],
)
@pytest.mark.parametrize("pickled", [False, True])
def test_what_xgboosts_exporter_does_not_know_is_said_before_it_fails_over_it(
    settings: dict[str, Any], targets: int, said: str, tmp_path: Path, *, pickled: bool
) -> None:
    import xgboost

    if "objective" in settings:
        model = xgboost.XGBRanker(n_estimators=2, **settings).fit(ROWS, TARGETS, qid=numpy.arange(len(ROWS)) // 12)
    else:
        model = xgboost.XGBRegressor(n_estimators=2, **settings).fit(ROWS, ROWS[:, :targets])
    if pickled:
        (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    else:
        model.save_model(tmp_path / "model.json")
    source = tmp_path / ("model.pkl" if pickled else "model.json")
    found = refused(tmp_path, source, "--input", sample(tmp_path), "--trusted")
    assert f"why: {said}\n" in found
    assert "tidegate model new" in found


def test_answers_that_are_far_off_are_not_told_as_rounding_alone(tmp_path: Path) -> None:
    import xgboost

    model = xgboost.XGBRegressor(objective="survival:cox", n_estimators=3).fit(ROWS, TARGETS + 1)
    model.save_model(tmp_path / "model.json")
    found = refused(tmp_path, tmp_path / "model.json", "--input", sample(tmp_path), code=ExitCode.FOUND)
    assert "where rounding explains it, say --tolerance" in found
    assert "serve the model as it is" in found


def test_a_sparse_matrix_is_to_be_written_densely(tmp_path: Path) -> None:
    from scipy import sparse

    sparse.save_npz(tmp_path / "rows.npz", sparse.csr_matrix(ROWS))
    said = refused(tmp_path, boosted(tmp_path), "--input", tmp_path / "rows.npz")
    assert "write sparse matrices densely (matrix.toarray())" in said


def test_what_no_exporter_knows_is_said_with_the_librarys_own_reason(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = make_pipeline(FunctionTransformer(numpy.sinh), Ridge()).fit(ROWS, TARGETS)
    said = refused(tmp_path, saved(model, tmp_path / "model"), "--input", sample(tmp_path), "--trusted")
    assert "this model of sklearn cannot be exported" in said
    assert "FunctionTransformer" in said
    assert "tidegate model new" in said


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS[:3, :2], "the model does not answer these inputs"),
        (numpy.zeros((0, FEATURES)), "at least one"),
        (numpy.float32(1), "at least one"),
        (numpy.full((2, FEATURES), numpy.nan), "no row can be a golden request"),
    ],
    ids=["other-columns", "no-row", "no-rows-at-all", "only-nan"],
)
def test_inputs_that_the_model_does_not_take_are_said(rows: Any, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path, rows))


def test_inputs_of_different_rows_are_said(tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text('{"a": [[1], [2]], "b": [[1]]}')
    assert "these inputs are no tensors" in refused(tmp_path, boosted(tmp_path), "--input", tmp_path / "two.json")


def test_a_model_whose_answers_depend_on_the_rest_of_their_batch_has_no_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_mean(source: Any, sample: Any, right: Any, file: Path, where: str) -> Any:  # noqa: ARG001
        nodes = [
            onnx.helper.make_node("ReduceMean", ["X"], ["mean"], axes=[0], keepdims=1),
            onnx.helper.make_node("Sub", ["X", "mean"], ["OUT"]),
        ]
        write_onnx(file, nodes, "X")
        return sample

    monkeypatch.setattr(entry, "convert", without_mean)
    monkeypatch.setattr(entry, "ask_original", lambda *_: [(ROWS[:40] - ROWS[:40].mean(axis=0)).astype(numpy.float32)])
    said = refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path), code=ExitCode.FOUND)
    assert "otherwise than the original in a batch of 1" in said
    assert "say --max-batch-size 0" in said


def test_without_any_inputs_there_is_nothing_to_compare_on(tmp_path: Path) -> None:
    assert "no inputs to compare on" in refused(tmp_path, boosted(tmp_path))


def test_an_input_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path, boosted(tmp_path), "--input", tmp_path / "none.npy")


def test_a_source_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "there is no such file or folder" in refused(tmp_path, tmp_path / "none", "--input", sample(tmp_path))


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("hello")
    (tmp_path / "model.json").write_text('{"a": 1}')
    for name in ("model.txt", "model.json"):
        said = refused(tmp_path, tmp_path / name, "--input", sample(tmp_path))
        assert "nothing exports this\n  why: nothing in it tells what model it is\n  do: there are exporters" in said


def test_a_broken_file_is_said_with_the_librarys_own_reason(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("tree\nversion=v4\n")
    assert "lightgbm cannot load it" in refused(tmp_path, tmp_path / "model.txt", "--input", sample(tmp_path))


def test_a_flavor_of_mlflows_without_an_exporter_is_said(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/MLmodel").write_text("flavors:\n  prophet: {}\n")
    assert "it has the flavors prophet" in refused(tmp_path, tmp_path / "model", "--input", sample(tmp_path))


def test_onnx_needs_no_export(tmp_path: Path) -> None:
    write_onnx(tmp_path / "model.onnx")
    said = refused(tmp_path, tmp_path / "model.onnx", "--input", sample(tmp_path))
    assert "it is ONNX already" in said
    assert "tidegate model new" in said


def test_torchscript_is_of_pytorch_only(tmp_path: Path) -> None:
    said = refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path), "--to", "torchscript")
    assert "TorchScript is made of PyTorch only, and this is lightgbm" in said


def test_a_target_that_is_misspelt_is_said_with_the_nearest(tmp_path: Path) -> None:
    said = refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path), "--to", "onx")
    assert "say onnx" in said


def test_a_folder_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "new" / "made").mkdir(parents=True)
    assert "is not overwritten" in refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path))


def test_a_name_that_no_model_can_have_is_said(tmp_path: Path) -> None:
    said = refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path), "--name", "a b")
    assert "'a b' is no name for a model" in said


@pytest.mark.parametrize("missing", ["lightgbm", "onnxmltools", "onnxruntime"])
def test_a_library_that_is_missing_is_said_with_the_extra_that_has_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, rows = boosted(tmp_path), sample(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    said = refused(tmp_path, file, "--input", rows)
    assert f"exporting this needs {missing}" in said
    assert 'pip install "./client[lightgbm]"' in said


def test_torchscript_is_a_program_and_is_loaded_only_when_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"")
        archive.writestr("model/code/__torch__.py", b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    said = refused(tmp_path, tmp_path / "model.pt", "--input", sample(tmp_path))
    assert "TorchScript, which is a program" in said
    assert "--trusted" in said
    assert "exporting this needs torch" in refused(
        tmp_path, tmp_path / "model.pt", "--input", sample(tmp_path), "--trusted"
    )


def test_without_pytorch_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.pt2").write_bytes(b"PK\x05\x06" + bytes(18))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "it may hold a pickle" in refused(tmp_path, tmp_path / "model.pt2", "--input", sample(tmp_path))
    said = refused(tmp_path, tmp_path / "model.pt2", "--input", sample(tmp_path), "--trusted")
    assert 'pip install "./client[torch]"' in said


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-1", "much"])
def test_a_tolerance_that_is_none_is_said(tolerance: str, tmp_path: Path) -> None:
    assert "--tolerance" in refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path), "--tolerance", tolerance)
