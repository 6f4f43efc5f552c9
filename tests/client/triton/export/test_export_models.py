import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from google.protobuf import text_format
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from tidegate.registry.golden import read_golden
from tidegate.triton.export.model import Sample, ask_exported
from tritonclient.grpc.model_config_pb2 import ModelConfig
from typer.testing import CliRunner

from .models import CLASSES, FEATURES, ROWS, TARGETS, export, refused, sample, saved, trained, write_onnx


def config(entry: Path) -> ModelConfig:
    return text_format.Parse((entry / "config.pbtxt").read_text(), ModelConfig())


def answers_its_golden_request(entry: Path) -> bool:
    golden = read_golden((entry / "golden.json").read_bytes(), "golden.json")
    types = {"FP32": numpy.float32, "INT64": numpy.int64, "BYTES": object}
    inputs = {
        each["name"]: numpy.array(each["data"], types[each["datatype"]]).reshape(each["shape"])
        for each in golden.request["inputs"]
    }
    found = ask_exported(entry / "1/model.onnx", Sample(None, inputs, 0), "")
    names = [each.name for each in config(entry).output]
    message = [{"name": name, "data": each.reshape(-1).tolist()} for name, each in zip(names, found, strict=True)]
    return golden.differences({"outputs": message}) == []


def made(tmp_path: Path, *words: object) -> Path:
    """Export a model, and return the entry, about which `check` finds nothing."""
    done = export(*words[:1], tmp_path / "made", *words[1:])
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(app, ["model", "check", "--strict", str(tmp_path / "made")])
    assert checked.exit_code == 0, checked.output
    assert not [each.name for each in tmp_path.iterdir() if each.name.startswith(".")]
    return tmp_path / "made"


def sklearn_models() -> dict[str, Callable[[], Any]]:
    from sklearn import cluster, ensemble, linear_model, pipeline, preprocessing, svm

    scaler = preprocessing.StandardScaler
    return {
        "logistic": lambda: linear_model.LogisticRegression().fit(ROWS, TARGETS),
        "texts": lambda: pipeline.make_pipeline(scaler(), svm.SVC()).fit(ROWS, CLASSES[TARGETS]),
        "forest": lambda: ensemble.RandomForestClassifier(10, random_state=1).fit(ROWS, TARGETS),
        "gradient": lambda: ensemble.HistGradientBoostingRegressor(max_iter=9).fit(ROWS, ROWS[:, 2]),
        "linear-svc": lambda: svm.LinearSVC().fit(ROWS, TARGETS),
        "two-targets": lambda: linear_model.LinearRegression().fit(ROWS, ROWS[:, :2]),
        "clusters": lambda: cluster.KMeans(3, random_state=1, n_init=2).fit(ROWS),
        "outliers": lambda: ensemble.IsolationForest(n_estimators=9, random_state=1).fit(ROWS),
        "scaler": lambda: scaler().fit(ROWS),
    }


@pytest.mark.parametrize(
    "name", ["logistic", "texts", "forest", "gradient", "linear-svc", "two-targets", "clusters", "outliers", "scaler"]
)
def test_a_model_of_scikit_learn_answers_alike(name: str, tmp_path: Path) -> None:
    model = saved(sklearn_models()[name](), tmp_path / "model")
    entry = made(tmp_path, model, "--input", sample(tmp_path), "--trusted")
    (only,) = config(entry).input
    assert (only.name, list(only.dims)) == ("X", [FEATURES])
    assert answers_its_golden_request(entry)


def test_classes_that_are_true_and_false_are_ones_and_zeros(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    source = saved(LogisticRegression().fit(ROWS, TARGETS > 0), tmp_path / "model")
    entry = made(tmp_path, source, "--input", sample(tmp_path), "--trusted")
    golden = read_golden((entry / "golden.json").read_bytes(), "")
    assert golden.outputs is not None
    assert {type(each) for each in golden.outputs["label"]} == {int}
    assert answers_its_golden_request(entry)


def test_a_vectorizer_that_lowers_letters_needs_no_locale_that_images_lack(tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = numpy.array(["Calm SEA", "Storm at sea", "CALM again"])
    entry = made(
        tmp_path,
        saved(TfidfVectorizer().fit(texts), tmp_path / "model"),
        "--input",
        sample(tmp_path, texts),
        "--trusted",
    )
    assert answers_its_golden_request(entry)


def test_a_model_saved_with_skops_needs_trust_for_types_that_skops_does_not_know_only(tmp_path: Path) -> None:
    import skops.io
    from sklearn.preprocessing import FunctionTransformer

    model = trained(tmp_path)
    assert (model / "model.skops").is_file()
    assert answers_its_golden_request(made(tmp_path, model, "--input", sample(tmp_path)))

    skops.io.dump(FunctionTransformer(write_onnx), model / "model.skops")
    found = refused(tmp_path, model, "--input", sample(tmp_path))
    assert f"types that skops does not trust ({write_onnx.__module__}.write_onnx)" in found
    assert "--trusted" in found


def test_json_has_the_largest_difference_of_each_output(tmp_path: Path) -> None:
    done = export(trained(tmp_path), tmp_path / "made", "--input", sample(tmp_path), "--json")
    message = json.loads(done.stdout)
    assert message["differences"]["label"] == 0
    assert 0 < message["differences"]["probabilities"] < 1e-6
    assert message["rows"] == 40
    assert message["then"] == f"tidegate register {tmp_path}/made --golden {tmp_path}/made/golden.json"


def test_without_batches_the_rows_are_a_dimension_of_any_size(tmp_path: Path) -> None:
    words = ("--input", sample(tmp_path, ROWS[:50]), "--max-batch-size", 0, "--name", "made")
    entry = made(tmp_path, trained(tmp_path), *words)
    assert list(config(entry).input[0].dims) == [-1, FEATURES]
    assert read_golden((entry / "golden.json").read_bytes(), "").request["inputs"][0]["shape"] == [50, FEATURES]


def test_a_difference_beyond_the_tolerance_is_an_error_and_there_is_no_entry(tmp_path: Path) -> None:
    words = ("--input", sample(tmp_path), "--tolerance", "1e-12")
    done = export(trained(tmp_path), tmp_path / "made", *words)
    assert done.exit_code == ExitCode.FOUND
    assert "answers differently than the original" in done.stderr
    assert "probabilities differs by" in done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"sample.npy", "trained"}
