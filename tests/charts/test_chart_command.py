import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from charts import CHART, values_of
from charts.folder import contents, stale, write
from charts.project import ROOT
from cli.app import app
from stacks.resolve import resolve
from stacks.validate import read_definition

REFERENCE = ROOT / "stacks" / "inference.yaml"


def charts(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    return contents()


def test_the_values_of_a_stack_are_resolved_and_have_a_heading() -> None:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("values", REFERENCE), "Add a stack, such as --stack dev-lab. There are: dev-lab, prod-east, prod-west.\n"),
        (("values", REFERENCE, "--stack", ""), "Add a stack, such as --stack dev-lab."),
        (("values", REFERENCE, "--stack", "prod-eats"), 'Did you mean "prod-east"? There are: dev-lab, prod-east, '),
    ],
)
def test_a_missing_option_is_reported_in_a_line(arguments: tuple[str | Path, ...], message: str) -> None:
    result = charts(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_generating_writes_missing_files_and_removes_others(tmp_path: Path, wanted: dict[str, str]) -> None:
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


def test_two_processes_with_other_hash_seeds_write_the_same_chart() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "charts", "--check"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{ROOT}:{ROOT / 'contracts'}", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_chart_is_written_into_a_directory_of_the_user(tmp_path: Path, wanted: dict[str, str]) -> None:
    first, second = (charts("chart", "--out", tmp_path / "tidegate") for _ in range(2))
    assert first.exit_code == 0
    assert stale(wanted, tmp_path / "tidegate") == []
    assert second.stdout.endswith("files, nothing changed.\n")
    (tmp_path / "notes.txt").write_text("mine")
    refused = charts("chart", "--out", tmp_path)
    assert refused.exit_code == 1
    assert "has no Tidegate chart" in refused.stderr
    assert (tmp_path / "notes.txt").exists()
