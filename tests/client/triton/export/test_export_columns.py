"""A table's columns are those that the model was trained with, by their names, in whatever order they are given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from .models import ROWS, TARGETS, refused, saved
from .test_export_models import answers_its_golden_request, config, made

LABELS = TARGETS > 0


def table() -> Any:
    import pandas

    years = (ROWS[:, 1] * 20 + 40).astype(int)
    return pandas.DataFrame({"age": years, "net income": ROWS[:, 0], "member": years % 2 == 0})


def csv(given: Any, folder: Path) -> Path:
    given.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def xgboost_model(folder: Path) -> Path:
    import mlflow.xgboost
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=4, n_jobs=1).fit(table(), LABELS)
    mlflow.xgboost.save_model(model, str(folder / "model"), pip_requirements=["xgboost"])
    return folder / "model"


def lightgbm_model(folder: Path) -> Path:
    import lightgbm
    import mlflow.lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1).fit(table(), LABELS)
    mlflow.lightgbm.save_model(model, str(folder / "model"), pip_requirements=["lightgbm"])
    return folder / "model"


def lightgbm_booster(folder: Path) -> Path:
    import lightgbm
    import mlflow.lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1).fit(table(), LABELS)
    mlflow.lightgbm.save_model(model.booster_, str(folder / "model"), pip_requirements=["lightgbm"])
    return folder / "model"


def sklearn_model(folder: Path) -> Path:
    from sklearn.linear_model import LogisticRegression

    return saved(LogisticRegression().fit(table(), LABELS), folder / "model")


TRAINED = [xgboost_model, lightgbm_model, lightgbm_booster, sklearn_model]


@pytest.mark.parametrize("train", TRAINED)
def test_columns_in_another_order_and_beside_others_make_the_very_same_entry(
    train: Callable[[Path], Path], tmp_path: Path
) -> None:
    entries = []
    for name, given in (("same", table()), ("other", table().iloc[:, ::-1].assign(target=LABELS))):
        (tmp_path / name).mkdir()
        words = ("--input", csv(given, tmp_path / name), "--trusted", "--name", "made")
        entries.append(made(tmp_path / name, train(tmp_path / name), *words))
    one, other = ({file.name: file.read_bytes() for file in each.rglob("*") if file.is_file()} for each in entries)
    assert one == other
    assert answers_its_golden_request(entries[1])


@pytest.mark.parametrize("train", TRAINED)
def test_a_column_that_is_called_otherwise_is_refused_with_both_lists(
    train: Callable[[Path], Path], tmp_path: Path
) -> None:
    source, given = train(tmp_path), csv(table().rename(columns={"age": "years"}), tmp_path)
    said = refused(tmp_path, source, "--input", given, "--trusted")
    assert "the inputs lack columns of the model: age" in said
    trained, there = said.partition("it was trained with ")[2].split("\n")[0].replace("_", " ").split("; they have ")
    assert (trained, there) == ("age, net income, member", "years, net income, member")


def test_a_model_that_keeps_no_names_takes_a_table_as_it_is(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge

    source = saved(Ridge().fit(table().to_numpy(float), ROWS[:, 0]), tmp_path / "model")
    assert answers_its_golden_request(made(tmp_path, source, "--input", csv(table(), tmp_path), "--trusted"))


def test_whole_numbers_beside_others_are_fp32_where_the_exporter_does_not_take_them(tmp_path: Path) -> None:
    from sklearn import compose, impute, linear_model, pipeline, preprocessing

    filled = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    columns = compose.make_column_transformer((filled, ["age", "net income"]))
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression()).fit(table(), LABELS)
    entry = made(tmp_path, saved(model, tmp_path / "model"), "--input", csv(table(), tmp_path), "--trusted")
    assert [(each.name, each.data_type) for each in config(entry).input][:2] == [("age", 11), ("net_income", 11)]
    assert answers_its_golden_request(entry)


def test_texts_among_numbers_are_said_where_trees_take_none(tmp_path: Path) -> None:
    given = csv(table().assign(age=numpy.where(LABELS, "old", "young")), tmp_path)
    said = refused(tmp_path, xgboost_model(tmp_path), "--input", given)
    assert "could not convert string to float: 'old'" in said or "could not convert string to float: 'young'" in said
    assert "encode texts" in said
