"""`tidegate model check`: for people, with lines that editors find; for programs, as JSON; with an exit code."""

import json
from pathlib import Path

import pytest
import typer
from tidegate.cli.model import check
from tidegate.errors import ExitCode
from typer.testing import CliRunner, Result

from tests.client.triton.entries.corpus_entries import CONFIG, MODEL

app = typer.Typer()
app.command()(check)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, more in (("good", ""), ("odd", "dynamic_batching { }\n"), ("wrong", "max_batch_sice: 8\n")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text(MODEL)
        (tmp_path / name / "config.pbtxt").write_text(CONFIG + more)
    return tmp_path


def test_a_good_entry_is_fine(repository: Path) -> None:
    said = run(repository / "good")
    assert (said.exit_code, said.output) == (ExitCode.OK, f"{repository / 'good'}: nothing found\n")


def test_an_error_has_its_file_and_line_and_what_to_do(repository: Path) -> None:
    said = run(repository / "wrong")
    assert said.exit_code == ExitCode.FOUND
    assert said.output == (
        f"{repository}/wrong/config.pbtxt:4: error: there is no field 'max_batch_sice'\n"
        "  do: did you mean 'max_batch_size'?\n"
        f"{repository}/wrong: 1 error\n"
    )


def test_warnings_count_only_when_asked(repository: Path) -> None:
    assert run(repository / "odd").exit_code == ExitCode.OK
    assert run(repository / "odd", "--strict").exit_code == ExitCode.FOUND


def test_a_repository_is_checked_whole(repository: Path) -> None:
    said = run(repository, "--json")
    assert said.exit_code == ExitCode.FOUND
    results = json.loads(said.output)
    assert {Path(result["entry"]).name: result["ok"] for result in results} == {
        "good": True,
        "odd": True,
        "wrong": False,
    }
    (finding,) = results[2]["findings"]
    assert finding == {
        "severity": "error", "what": "there is no field 'max_batch_sice'", "where": "config.pbtxt:4", "why": "",
        "do": "did you mean 'max_batch_size'?",
    }  # fmt: skip


def test_the_server_is_described_by_options(repository: Path) -> None:
    said = run(repository / "good", "--backend", "onnxruntime", "--backend", "fil")
    assert said.exit_code == ExitCode.FOUND
    assert "it has fil, onnxruntime" in said.output
    assert run(repository / "good", "--backend", "python", "--no-gpu").exit_code == ExitCode.OK


def test_what_is_nowhere_is_wrong_usage(repository: Path) -> None:
    said = run(repository / "nowhere")
    assert said.exit_code == ExitCode.USAGE
    assert "there is no such folder" in said.output
    assert "Traceback" not in said.output
