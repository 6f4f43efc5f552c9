"""`python -m charts`: values of a stack, a check of values, and the folder of the chart."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from charts import CHART, values_of
from charts.__main__ import app
from charts.folder import contents, stale, write
from charts.metadata import ROOT
from stacks.resolve import resolve
from stacks.validate import read_definition

REFERENCE = ROOT / "stacks" / "inference.yaml"


def charts(*arguments: str | Path) -> Result:
    """Run the command; it must end by itself, without a traceback."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    """What the chart's files must say."""
    return contents()


@pytest.fixture
def values_file(tmp_path: Path) -> Path:
    """The values of dev-lab."""
    file = tmp_path / "dev-lab.yaml"
    file.write_text(charts("values", REFERENCE, "--stack", "dev-lab").stdout, "utf-8")
    return file


def edit(file: Path, old: str, new: str) -> int:
    """Replace a text that stands once in a file; return its line."""
    text = file.read_text("utf-8")
    assert text.count(old) == 1, text.count(old)
    file.write_text(text.replace(old, new), "utf-8")
    return text[: text.index(old)].count("\n") + 1


def test_the_values_of_a_stack_are_those_that_it_resolves_to_under_a_heading() -> None:
    result = charts("values", REFERENCE, "--stack", "prod-east")
    assert result.exit_code == 0
    definition = read_definition(REFERENCE)
    (stack,) = (stack for stack in definition.stacks if stack.name == "prod-east")
    assert yaml.safe_load(result.stdout) == values_of(resolve(stack, definition.lock))
    heading = result.stdout.partition("\n\n")[0]
    assert all(line.startswith("# ") for line in heading.splitlines())
    assert "stack prod-east of" in heading
    assert "charts/tidegate --namespace inference-prod \\\n#   --create-namespace --take-ownership" in heading
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [(), ("--stack", "")])
def test_without_a_stack_it_lists_those_that_there_are(arguments: tuple[str, ...]) -> None:
    result = charts("values", REFERENCE, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Say which stack, as in STACK=dev-lab. There are: dev-lab, prod-east, prod-west.\n"


def test_an_unknown_stack_is_answered_with_the_nearest() -> None:
    result = charts("values", REFERENCE, "--stack", "prod-eats")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean prod-east? There are: dev-lab, prod-east, prod-west." in result.stderr


def test_a_definition_that_is_wrong_gives_no_values(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("images: [\n")
    result = charts("values", tmp_path / "wrong.yaml", "--stack", "a")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "wrong.yaml:1:9" in result.stderr


def test_values_of_a_stack_pass_the_check(values_file: Path) -> None:
    result = charts("check", values_file)
    assert result.exit_code == 0, result.stderr
    assert re.match(rf"{re.escape(str(values_file))}: ok – \d+ objects", result.stdout)


def test_a_wrong_value_is_named_with_its_line(values_file: Path) -> None:
    line = edit(values_file, "mode: preload", "mode: preloud")
    result = charts("check", values_file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{values_file}:{line}:" in result.stderr
    assert "loading.mode" in result.stderr
    assert "'preload', 'on-demand'" in result.stderr
    assert result.stderr.endswith("nothing was installed.\n")


def test_an_edit_that_breaks_a_guardrail_is_refused(values_file: Path) -> None:
    edit(values_file, '"kind": "shared"', '"kind": "production"')
    result = charts("check", values_file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "mandatory" in result.stderr
    assert "docs/guardrails.md" in result.stderr


def test_a_file_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    result = charts("check", tmp_path / "nowhere.yaml")
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


def test_check_without_a_file_says_what_to_write() -> None:
    result = charts("check", "")
    assert result.exit_code == 2
    assert result.stderr == "Say which file, as in VALUES=prod-east.yaml.\n"


def test_nothing_that_is_committed_is_stale(wanted: dict[str, str]) -> None:
    assert stale(wanted) == []


def test_generating_writes_what_is_missing_and_takes_away_what_is_too_much(
    tmp_path: Path, wanted: dict[str, str]
) -> None:
    chart = tmp_path / "tidegate"
    shutil.copytree(CHART, chart)
    (chart / "values.yaml").write_text("edited: by hand\n")
    (chart / "README.md").unlink()
    (chart / "templates" / "old").mkdir()
    (chart / "templates" / "old" / "gone.yaml").write_bytes(b"\xff")
    changed = ["README.md", "templates/old/gone.yaml", "values.yaml"]
    assert stale(wanted, chart) == changed
    assert write(wanted, chart) == changed
    assert stale(wanted, chart) == write(wanted, chart) == []
    assert not (chart / "templates" / "old").exists()


def test_the_folder_is_the_same_in_another_process_whatever_the_order_of_hashes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "charts", "generate", "--check"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{ROOT}:{ROOT / 'contracts'}", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_packaging_says_where_the_file_is_and_what_it_hashes_to(tmp_path: Path) -> None:
    first, second = charts("package", "--out", tmp_path / "a"), charts("package", "--out", tmp_path / "b")
    assert first.exit_code == second.exit_code == 0
    assert re.search(r"tidegate-[0-9.]+\.tgz  sha256:[0-9a-f]{64}\n$", first.stdout)
    assert first.stdout.split()[-1] == second.stdout.split()[-1]
