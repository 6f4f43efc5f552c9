"""`tidegate` as a whole: help, version, exit codes, and errors that are one message."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tidegate import __version__
from tidegate.cli import output
from tidegate.cli.app import EPILOG
from tidegate.errors import BusyError, ExitCode, IntegrityError, RefusedError, TidegateError, UsageError

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = (
    "model", "register", "deploy", "promote", "rollback", "verify", "diff", "history", "prune", "predict", "models",
    "status", "tune",
)  # fmt: skip


def tidegate(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "MLFLOW_", "DOMINO_"))
    }
    paths = os.pathsep.join([str(ROOT / "client"), str(ROOT / "contracts")])
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *words],
        env=kept | {"PYTHONPATH": paths, "COLUMNS": "100"} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_lists_every_command_in_a_whole_sentence_and_every_exit_code() -> None:
    said = tidegate("--help").stdout
    assert all(re.search(rf"^  {command} +[A-Z].*[^.]\.$", said, re.MULTILINE) for command in COMMANDS)
    assert all(f"{code.value} " in EPILOG for code in ExitCode)


def test_help_does_not_wait_for_mlflow() -> None:
    program = "import sys; from tidegate.cli import app; print(sorted({'mlflow', 'pandas', 'grpc'} & set(sys.modules)))"
    paths = os.pathsep.join([str(ROOT / "client"), str(ROOT / "contracts")])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package() -> None:
    assert tidegate("--version").stdout == f"tidegate {__version__}\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("deploy", "churn"), ExitCode.USAGE, "TIDEGATE_ENVIRONMENTS"),
        (("model", "check", "/nowhere/at/all"), ExitCode.USAGE, "/nowhere/at/all"),
        (("model", "show", "/nowhere/at/all"), ExitCode.USAGE, "/nowhere/at/all"),
        (("register", "/nowhere/at/all"), ExitCode.USAGE, "/nowhere/at/all"),
        (("predict", "churn", "--zeros"), ExitCode.USAGE, "TIDEGATE_ENVIRONMENTS"),
        (("flying",), ExitCode.USAGE, "flying"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else None,
)
def test_wrong_input_is_told_in_one_message_without_a_traceback(
    words: tuple[str, ...], code: ExitCode, text: str
) -> None:
    done = tidegate(*words)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TidegateError("w"), 1), (UsageError("w"), 2), (RefusedError("w"), 3), (BusyError("w"), 4),
        (IntegrityError("w", where="a/b:3", why="so", do="that"), 7), (OSError(5, "no good", "file"), 6),
        (KeyboardInterrupt(), 130), (ZeroDivisionError(), output.DEFECT),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, BaseException) else None,
)  # fmt: skip
def test_each_kind_of_failure_has_its_exit_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    with pytest.raises(typer.Exit) as ended, output.answering():
        raise error
    assert ended.value.exit_code == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if isinstance(error, IntegrityError):
        assert said == "a/b:3: w\n  why: so\n  do: that\n"


def test_long_work_says_how_far_it_is_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with output.progress("sending", 4 << 20) as advance:
        for _ in range(4):
            advance(1 << 20)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(re.fullmatch(r"sending: \d+ % of 4\.0 MiB", line) for line in lines)


@pytest.mark.parametrize(("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")])
def test_sizes_are_words(count: int, words: str) -> None:
    assert output.size(count) == words
