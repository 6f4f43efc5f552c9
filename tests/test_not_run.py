"""What a machine cannot run is not passed over: every test that was left out is named, with the reason."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOUD = """
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_one(number):
    pytest.skip("NOT RUN: NOTHING OF THE KIND IS HERE (it is not), so that it was not tried.")

@pytest.mark.skipif(True, reason="NOT RUN: NOTHING OF THE KIND IS HERE (it is not), so that it was not tried.")
def test_other():
    pass
"""


def run(file: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    plugins = ["-p", "xdist", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    command = [sys.executable, "-m", "pytest", *plugins, *options, str(file)]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take seconds
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("options", [(), ("-n1",)], ids=["alone", "with workers"])
def test_what_was_not_run_is_listed_by_name_below_its_reason(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "test_loud.py"
    file.write_text(LOUD)
    done = run(file, *options)
    assert done.returncode == 0, done.stdout
    _, listed = done.stdout.split("= NOT RUN: NOTHING OF THE KIND IS HERE =")
    first, *names = [line for line in listed.splitlines() if "test_loud.py" in line or "NOT RUN" in line][:4]
    assert first == "NOT RUN: NOTHING OF THE KIND IS HERE (it is not), so that it was not tried."
    assert [name.rpartition("::")[2] for name in names] == ["test_one[1]", "test_one[2]", "test_other"]


PARTS = """
import pytest

@pytest.mark.parametrize("what", ["THE ENGINE OF PULUMI IS NOT HERE", "A TRITON IS NOT HERE (no pulumi)"])
def test_of(what):
    pytest.skip(f"NOT RUN: {what}, so that it was not tried.")
"""


@pytest.mark.parametrize(
    ("options", "failed"),
    [
        (("--require-all",), ["PULUMI", "TRITON"]),
        (("--allow-not-run", "pulumi"), ["TRITON"]),
        (("--require-all", "--allow-not-run", "node pulumi", "-n1"), ["TRITON"]),
        (("--allow-not-run", "pulumi triton"), []),
    ],
    ids=["nothing", "one part", "with workers", "two parts"],
)
def test_a_run_may_demand_that_nothing_is_left_out_but_what_it_names(
    tmp_path: Path, options: tuple[str, ...], failed: list[str]
) -> None:
    file = tmp_path / "test_parts.py"
    file.write_text(PARTS)
    done = run(file, *options)
    assert (done.returncode != 0) == bool(failed), done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert [name for line in told for name in ("PULUMI", "TRITON") if name in line] == failed, done.stdout
    assert done.stdout.count("left out, and this run allows none to be: NOT RUN: ") >= len(failed)


def test_a_run_may_demand_that_no_whole_file_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "test_file.py"
    file.write_text("import pytest\npytest.skip('NOT RUN: A NODE IS NOT HERE.', allow_module_level=True)\n")
    done = run(file, "--require-all")
    assert done.returncode != 0
    assert "left out, and this run allows none to be: NOT RUN: A NODE IS NOT HERE." in done.stdout


def test_ci_allows_the_engine_of_pulumi_alone_to_be_missing(tmp_path: Path) -> None:
    """It is the one part that no package registry has."""
    tools = tmp_path / "make"
    tools.write_text(f'#!/bin/sh\nexec {shutil.which("make")} --dry-run "$@"\n')
    tools.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "MAKEFLAGS": ""}
    done = subprocess.run([ROOT / ".ci/run"], env=environment, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if " -m pytest " in line]
    assert '--allow-not-run "$ALLOW_NOT_RUN"' in line
    assert "ALLOW_NOT_RUN=pulumi" in (ROOT / ".ci/run").read_text("utf-8").split()


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\ndef test_it():\n    pytest.skip('not today')\n",
        "import pytest\ndef test_it():\n    pytest.importorskip('no_such_module')\n",
        "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n",
        "import pytest\n@pytest.mark.skipif(True, reason='another system')\ndef test_it(): pass\n",
        "import unittest\nclass TestIt(unittest.TestCase):\n    def test_it(self): self.skipTest('no')\n",
    ],
    ids=["skip", "module of a test", "module of a file", "mark", "unittest"],
)
def test_a_test_that_is_left_out_in_silence_has_failed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "test_silent.py"
    file.write_text(text)
    done = run(file)
    assert done.returncode != 0, done.stdout
    assert "left out in silence" in done.stdout
