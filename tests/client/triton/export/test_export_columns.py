from pathlib import Path
from typing import Any

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


def sklearn_model(folder: Path) -> Path:
    from sklearn.linear_model import LogisticRegression

    return saved(LogisticRegression().fit(table(), LABELS), folder / "model")


def test_columns_in_another_order_and_among_others_give_the_same_entry(tmp_path: Path) -> None:
    entries = []
    for name, given in (("same", table()), ("other", table().iloc[:, ::-1].assign(target=LABELS))):
        (tmp_path / name).mkdir()
        words = ("--input", csv(given, tmp_path / name), "--trusted", "--name", "made")
        entries.append(made(tmp_path / name, sklearn_model(tmp_path / name), *words))
    one, other = ({file.name: file.read_bytes() for file in each.rglob("*") if file.is_file()} for each in entries)
    assert one == other
    assert answers_its_golden_request(entries[1])


def test_a_column_with_another_name_is_refused_with_both_lists(tmp_path: Path) -> None:
    source, given = sklearn_model(tmp_path), csv(table().rename(columns={"age": "years"}), tmp_path)
    message = refused(tmp_path, source, "--input", given, "--trusted")
    assert "the inputs lack columns of the model: age" in message
    trained, there = message.partition("it was trained with ")[2].split("\n")[0].split(", but they have ")
    assert (trained, there) == ("age, net income, member", "years, net income, member")


def test_mixed_whole_numbers_are_fp32_if_the_exporter_refuses_them(tmp_path: Path) -> None:
    from sklearn import compose, impute, linear_model, pipeline, preprocessing

    filled = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    columns = compose.make_column_transformer((filled, ["age", "net income"]))
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression()).fit(table(), LABELS)
    entry = made(tmp_path, saved(model, tmp_path / "model"), "--input", csv(table(), tmp_path), "--trusted")
    assert [(each.name, each.data_type) for each in config(entry).input][:2] == [("age", 11), ("net_income", 11)]
    assert answers_its_golden_request(entry)
