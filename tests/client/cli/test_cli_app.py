import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tidegate import __version__, output
from tidegate.cli.app import EPILOG, PLATFORM, app
from tidegate.errors import BusyError, ExitCode, IntegrityError, RefusedError, TidegateError, UsageError

from cli.app import app as whole

ROOT = Path(__file__).resolve().parents[3]
PATHS = os.pathsep.join([str(ROOT / "client"), str(ROOT / "contracts")])
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def python(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    ours = ("TIDEGATE_", "MLFLOW_", "DOMINO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ = kept | {"PYTHONPATH": PATHS, "COLUMNS": "100"} | variables
    return subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def tidegate(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return python("-m", "tidegate", *words, **variables)


def test_help_lists_every_command_in_a_whole_sentence_and_every_exit_code() -> None:
    message = tidegate("--help").stdout
    assert all(re.search(rf"^  {command} +[A-Z].*[^.]\.$", message, re.MULTILINE) for command in COMMANDS)
    assert all(f"{code.value} " in EPILOG for code in ExitCode)


def test_help_does_not_wait_for_mlflow() -> None:
    program = "import sys\nfrom tidegate.cli import app\nprint(sorted({'mlflow', 'pandas', 'grpc'} & set(sys.modules)))"
    assert python("-c", program).stdout.strip() == "[]"


def test_the_version_is_that_of_the_package() -> None:
    assert tidegate("--version").stdout == f"tidegate {__version__}\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("deploy", "churn"), ExitCode.USAGE, "TIDEGATE_ENVIRONMENTS"),
        (("model", "check", "/nowhere/at/all"), ExitCode.USAGE, "does not exist"),
        (("model", "new", "m", "/nowhere/at/all"), ExitCode.USAGE, "does not exist"),
        (("register", "/nowhere/at/all"), ExitCode.USAGE, "/nowhere/at/all"),
        (("predict", "churn", "-i", "X=1"), ExitCode.USAGE, "TIDEGATE_ENVIRONMENTS"),
        (("flying",), ExitCode.USAGE, "flying"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else None,
)
def test_wrong_input_is_one_message(words: tuple[str, ...], code: ExitCode, text: str) -> None:
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
def test_each_failure_has_its_exit_code(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, output.exit_codes():
        raise error
    assert ended.value.exit_code == code
    message = capsys.readouterr().err
    assert "Traceback" not in message
    if isinstance(error, IntegrityError):
        assert message == "a/b:3: w\n  why: so\n  do: that\n"


@pytest.mark.parametrize(("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")])
def test_sizes_are_words(count: int, words: str) -> None:
    assert output.size(count) == words


def test_no_text_of_others_controls_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    order = "\x1b]0;owned\x07"
    output.print_table(("A",), [(f"cell{order}",)], f"title{order}")
    output.note(f"note{order}")
    with pytest.raises(typer.Exit), output.exit_codes():
        raise UsageError(f"error{order}", do="line by\nline")
    message = capsys.readouterr()
    assert "\x1b" not in message.out + message.err
    assert "\x07" not in message.out + message.err
    assert "line by\nline" in message.err


def test_ctrl_c_while_it_is_being_loaded_is_one_line() -> None:
    """The imports take a while, and longer on a network share. Here Ctrl-C comes during that of typer."""
    program = (
        "import builtins, runpy, sys\n"
        "load = builtins.__import__\n"
        "def stopped(name, *more, **options):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return load(name, *more, **options)\n"
        "builtins.__import__ = stopped\n"
        "runpy.run_module('tidegate', run_name='__main__')\n"
    )
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (ExitCode.STOPPED, "stopped\n")


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        place = str(len(words.split(" ")) - 1)
        message = tidegate(_TIDEGATE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place)
        return message.stdout.split()

    assert completed("tidegate pro") == ["promote"]
    assert set(completed("tidegate model ")) == {"new", "check"}
    assert "--max-batch-size" in completed("tidegate export --max")


def test_without_the_platform_its_commands_name_the_package_to_install() -> None:
    every = typer.main.get_command(whole).commands.keys()  # type: ignore[attr-defined]
    assert every - typer.main.get_command(app).commands.keys() == {*PLATFORM}  # type: ignore[attr-defined]
    done = python("-m", "tidegate", "up", "--cluster", "east")
    assert (done.returncode, done.stdout) == (2, "")
    assert "uv tool install" in done.stderr
