"""`tidegate tune`, around its measurements: what is written, when, and what is told before."""

from pathlib import Path

import pytest
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from tidegate.triton.entries.entry import read_entry
from tidegate.triton.tuning import sweep
from tidegate.triton.tuning.plan import Measurement, Report, Setting
from tidegate.triton.tuning.sweep import has_comments
from typer.testing import CliRunner, Result

from tests.client.triton.entries.corpus_entries import CONFIG, MODEL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(MODEL)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG + "# Ours.\n")
    return tmp_path


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the measurements, which take minutes."""
    setting = Setting(instances=2, max_batch=None, batch=1, concurrency=1)
    best = Measurement(
        setting=setting, inferences_per_second=9, p50_seconds=1, p90_seconds=1, p95_seconds=1, p99_seconds=1
    )
    monkeypatch.setattr(sweep, "tune", lambda *_, **__: Report(model="m", measurements=(best,), best=best))


def run(*words: object) -> Result:
    programs = ("--perf-analyzer", "/bin/true", "--tritonserver", "/bin/true")
    return CliRunner().invoke(app, ["tune", *map(str, words), *programs])


def test_a_picture_that_fails_loses_nothing_that_was_measured(folder: Path) -> None:
    (folder / "plot.svg").mkdir()
    said = run(folder / "m", "--write", folder / "best.pbtxt", "--plot", folder / "plot.svg")
    assert said.exit_code == ExitCode.USAGE
    assert "the plot cannot be written" in said.stderr
    assert "count: 2" in (folder / "best.pbtxt").read_text()


def test_it_is_said_before_that_comments_are_not_written(folder: Path) -> None:
    said = run(folder / "m", "--write", folder / "best.pbtxt").stderr
    assert 0 <= said.find("none of its comments") < said.find("settings,")
    (folder / "m" / "config.pbtxt").write_text(CONFIG + 'parameters { key: "#1" value { string_value: "\\"#" } }\n')
    assert "comments" not in run(folder / "m", "--write", folder / "best.pbtxt", "--overwrite").stderr
    assert "comments" not in run(folder / "m").stderr


def test_comments_are_told_from_texts(folder: Path) -> None:
    for text, expected in (("# x", True), ("name: '#' # x", True), ("name: '#'", False), ('name: "\\"#"', False)):
        (folder / "m" / "config.pbtxt").write_text(text)
        assert has_comments(read_entry(folder / "m")) is expected, text
