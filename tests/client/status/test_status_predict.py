import json
from pathlib import Path

import numpy
import pytest

from .conftest import Cli

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
ONE = "-i", "INPUT=[1, 2, 3]"
FLAT = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def data(cli: Cli, *words: str, stdin: str | None = None) -> list[float]:
    message = cli.json("predict", "batched", *words, stdin=stdin)
    assert (message["model"], message["version"]) == ("batched", "1")
    assert message["seconds"] > 0
    found: list[float] = message["outputs"]["OUTPUT"]["data"]
    return found


def test_a_table_shows_outputs_and_the_version_which_is_named_behind_the_model(cli: Cli) -> None:
    table = cli.run("predict", "versions", "-i", "INPUT=[7]")
    assert all(each in table for each in ("versions, version 1, ", "OUTPUT", "INT32"))
    assert "version 2" in cli.run("predict", "versions@2", "-i", "INPUT=[7]")
    assert "version 9" in cli.run("predict", "versions@9", "-i", "INPUT=[7]", code=5)
    assert "not a version" in cli.run("predict", "versions@x", "-i", "INPUT=[7]", code=2)


def test_inputs_come_as_words_and_files_of_every_kind(cli: Cli, tmp_path: Path) -> None:
    files = {"rows.json": {"INPUT": ROWS}, "list.json": [{"INPUT": row} for row in ROWS]}
    for name, message in files.items():
        (tmp_path / name).write_text(json.dumps(message))
    numpy.save(tmp_path / "array.npy", numpy.array(ROWS))
    numpy.savez(tmp_path / "arrays.npz", INPUT=numpy.array(ROWS))
    (tmp_path / "table.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    for name in (*files, "array.npy", "arrays.npz", "table.csv"):
        assert data(cli, "--data", str(tmp_path / name)) == FLAT, name
    assert data(cli, "--data", "-", stdin=json.dumps({"INPUT": ROWS})) == FLAT
    assert data(cli, "--input", f"INPUT={json.dumps(ROWS)}") == FLAT


def test_the_variable_of_endpoints_is_the_default(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", "http://127.0.0.1:9")
    assert "cannot be reached" in cli.run("predict", "batched", *ONE, code=6)
    assert "batched" in cli.run("predict", "batched", *ONE, "--environment", "dev")
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", cli.environment.url)
    monkeypatch.delenv("TIDEGATE_ENVIRONMENTS")
    assert "batched" in cli.run("predict", "batched", *ONE)


def test_a_model_that_never_fits_is_refused_immediately(cli: Cli) -> None:
    message = cli.run("predict", "huge", "-i", "INPUT=[1, 2, 3]", code=6)
    assert "larger than the memory of its pool" in message
    assert "2147483648 bytes" in message


def test_a_pickle_is_never_loaded(cli: Cli, tmp_path: Path) -> None:
    numpy.save(tmp_path / "evil.npy", numpy.array([{"a": 1}], object), allow_pickle=True)
    message = cli.run("predict", "batched", "-d", str(tmp_path / "evil.npy"), code=2)
    assert "evil.npy" in message
    (tmp_path / "evil.pkl").write_bytes(b"\x80\x04.")
    assert "cannot read inputs" in cli.run("predict", "batched", "-d", str(tmp_path / "evil.pkl"), code=2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [((), "either --data"), (("-d", "-", "-i", "INPUT=1"), "either --data"), (("-i", "INPUT"), "NAME=VALUE"),
     (("-i", "INPUT=1", "-i", "INPUT=2"), "given twice"), (("-d", "missing.json"), "cannot be read"),
     (("-i", "INPUTS=[1,2,3]"), "did you mean INPUT?"), (("-i", "INPUT=[1,2]"), "INPUT FP32[3]"),
     (("-i", "INPUT=abc"), "cannot hold")],
    ids=["nothing", "two", "no-value", "twice", "missing", "name", "shape", "text"],
)  # fmt: skip
def test_wrong_input_is_refused_and_nothing_is_called(cli: Cli, words: tuple[str, ...], expected: str) -> None:
    message = cli.run("predict", "batched", *words, code=2)
    assert expected in message
    assert "Traceback" not in message


def test_a_wrong_key_ends_every_command_alike(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_API_KEY", "tgk_wrong")
    for words in (("status",), ("predict", "versions", "-i", "INPUT=[7]")):
        assert "does not accept the credential" in cli.run(*words, code=3)
