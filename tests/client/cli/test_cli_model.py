import json
from pathlib import Path

import pytest
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from typer.testing import CliRunner, Result

from tests.client.triton.entries.corpus_entries import CONFIG, MODEL
from tests.client.triton.entries.files import FILES

DOUBLE = str(FILES / "double.py")
TENSORS = ("--input", "x:FP32:3", "--output", "y:FP32:3")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["model", *map(str, words)])


def test_an_entry_is_made_and_its_configuration_printed(tmp_path: Path) -> None:
    done = run("new", "made", str(FILES / "openvino.xml"), "--into", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert f"created {tmp_path}/made (openvino)" in done.stdout
    assert done.stdout.partition("\n")[2] == (tmp_path / "made/config.pbtxt").read_text()
    assert "--max-batch-size N" in done.stderr


def test_programs_get_json(tmp_path: Path) -> None:
    done = run("new", "made", DOUBLE, "--into", str(tmp_path), *TENSORS, "--json")
    caught = json.loads(done.stdout)
    assert caught["framework"] == "python"
    assert caught["folder"] == str(tmp_path / "made")
    assert caught["config"]["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": ["3"]}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("made", "nothing.onnx"), "nothing.onnx: it does not exist"),
        (("made", DOUBLE), "--input NAME:TYPE:DIMS"),
        (("../made", DOUBLE), "not a valid name of a model"),
        (("made", DOUBLE, "--framework", "pyton"), "mean python?"),
    ],
    ids=["source", "tensors", "name", "framework"],
)
def test_an_error_is_one_message_and_an_exit_code(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = run("new", *words, "--into", str(tmp_path))
    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, more in (("good", ""), ("odd", "dynamic_batching { }\n"), ("wrong", "max_batch_sice: 8\n")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text(MODEL)
        (tmp_path / name / "config.pbtxt").write_text(CONFIG + more)
    return tmp_path


def test_an_error_has_file_line_and_remedy(repository: Path) -> None:
    message = run("check", repository / "wrong")
    assert message.exit_code == ExitCode.FOUND
    assert message.output == (
        f"{repository}/wrong/config.pbtxt:4: error: there is no field 'max_batch_sice'\n"
        "  do: did you mean 'max_batch_size'?\n"
        f"{repository}/wrong: 1 error\n"
    )


def test_warnings_fail_only_a_strict_check_and_advisories_none(repository: Path) -> None:
    message = run("check", repository / "good", "--strict")
    assert message.exit_code == ExitCode.OK
    assert "advisory: its files do not show how much memory it needs" in message.output
    assert message.output.endswith(f"{repository / 'good'}: 1 advisory\n")
    assert run("check", repository / "odd").exit_code == ExitCode.OK
    assert run("check", repository / "odd", "--strict").exit_code == ExitCode.FOUND


def test_a_repository_is_checked_whole(repository: Path) -> None:
    message = run("check", repository, "--json")
    assert message.exit_code == ExitCode.FOUND
    results = json.loads(message.output)
    assert {Path(each["entry"]).name: each["ok"] for each in results} == {"good": True, "odd": True, "wrong": False}
    (finding,) = results[2]["findings"]
    assert finding == {
        "severity": "error", "what": "there is no field 'max_batch_sice'", "where": "config.pbtxt:4", "why": "",
        "do": "did you mean 'max_batch_size'?",
    }  # fmt: skip


@pytest.mark.parametrize("words", [("model", "check"), ("register",)])
@pytest.mark.parametrize(
    ("name", "message"),
    [("empty", "the directory is empty"), ("none", "the directory does not exist"), ("file", "this is a file")],
)
def test_a_missing_entry_is_reported_with_the_form_of_an_entry(
    tmp_path: Path, words: tuple[str, ...], name: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, [*words, str(tmp_path / name)])
    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    assert f"{tmp_path / name}: {message}\n  do: name a directory: a Triton model's with config.pbtxt" in done.stderr
    assert "a language model's with config.json, a tokenizer and *.safetensors" in done.stderr


def test_the_server_is_described_by_options(repository: Path) -> None:
    message = run("check", repository / "good", "--backend", "onnxruntime", "--backend", "fil")
    assert message.exit_code == ExitCode.FOUND
    assert "it has fil, onnxruntime" in message.output
    assert run("check", repository / "good", "--backend", "python", "--gpus", "0").exit_code == ExitCode.OK


def test_a_hint_that_several_findings_share_is_printed_once(tmp_path: Path) -> None:
    entry = tmp_path / "made"
    run("new", "made", DOUBLE, "--into", str(tmp_path), *TENSORS)
    for name in ("one", "two"):
        (entry / "1" / "__pycache__").mkdir(exist_ok=True)
        (entry / "1" / "__pycache__" / f"{name}.pyc").touch()
    message = run("check", str(entry)).stdout
    assert message.count("does not belong to a model") == 2
    assert message.count("do: delete it") == 1
