"""A run of the tests: what is left out is named, `make test-all` has more, and who shares servers shares a process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .order import ALONE, LONGEST, TOGETHER

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
PARTS = """
import pytest

@pytest.mark.parametrize("what", ["THE ENGINE OF PULUMI IS NOT HERE", "A TRITON IS NOT HERE (no pulumi)"])
def test_of(what):
    pytest.skip(f"NOT RUN: {what}, so that it was not tried.")
"""
TIERS = """
import pytest
from hypothesis import given, strategies

from tests.counts import examples

asked = []

@examples(80)
@given(strategies.integers())
def test_property(number):
    asked.append(number)

@pytest.mark.thorough
def test_thorough():
    pass

def test_count():
    print("asked", len(asked))
"""


def run(folder: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the tests of a text by this project's rules."""
    (folder / "test_it.py").write_text(text)
    return pytest_in(ROOT, *options, str(folder / "test_it.py"))


def pytest_in(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}  # they take seconds
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="alone", marks=pytest.mark.thorough), pytest.param(("-n1",), id="with workers")],
)
def test_what_was_not_run_is_listed_by_name_below_its_reason(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, LOUD, *options)
    assert done.returncode == 0, done.stdout
    _, listed = done.stdout.split("= NOT RUN: NOTHING OF THE KIND IS HERE =")
    first, *names = [line for line in listed.splitlines() if "test_it.py" in line or "NOT RUN" in line][:4]
    assert first == "NOT RUN: NOTHING OF THE KIND IS HERE (it is not), so that it was not tried."
    assert [name.rpartition("::")[2] for name in names] == ["test_one[1]", "test_one[2]", "test_other"]


@pytest.mark.parametrize(
    ("options", "failed"),
    [
        pytest.param(("--require-all",), ["PULUMI", "TRITON"], id="nothing"),
        pytest.param(("--allow-not-run", "pulumi"), ["TRITON"], id="one part", marks=pytest.mark.thorough),
        pytest.param(("--require-all", "--allow-not-run", "node pulumi", "-n1"), ["TRITON"], id="with workers"),
        pytest.param(("--allow-not-run", "pulumi triton"), [], id="two parts", marks=pytest.mark.thorough),
    ],
)
def test_a_run_may_demand_that_nothing_is_left_out_but_what_it_names(
    tmp_path: Path, options: tuple[str, ...], failed: list[str]
) -> None:
    done = run(tmp_path, PARTS, *options)
    assert (done.returncode != 0) == bool(failed), done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert [name for line in told for name in ("PULUMI", "TRITON") if name in line] == failed, done.stdout
    assert done.stdout.count("left out, and this run allows none to be: NOT RUN: ") >= len(failed)


def test_a_run_may_demand_that_no_whole_file_is_left_out(tmp_path: Path) -> None:
    text = "import pytest\npytest.skip('NOT RUN: A NODE IS NOT HERE.', allow_module_level=True)\n"
    done = run(tmp_path, text, "--require-all")
    assert done.returncode != 0
    assert "left out, and this run allows none to be: NOT RUN: A NODE IS NOT HERE." in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import pytest\ndef test_it():\n    pytest.skip('not today')\n", id="skip"),
        pytest.param(
            "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n",
            id="module of a file",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "import pytest\n@pytest.mark.skipif(True, reason='another system')\ndef test_it(): pass\n",
            id="mark",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_test_that_is_left_out_in_silence_has_failed(tmp_path: Path, text: str) -> None:
    done = run(tmp_path, text)
    assert done.returncode != 0, done.stdout
    assert "left out in silence" in done.stdout


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
    ("options", "ran", "asked"),
    [((), "2 passed, 1 deselected", 10), (("--thorough", "-n1"), "3 passed", 80)],
    ids=["test", "test-all with workers"],
)
def test_thorough_tests_and_all_examples_are_for_test_all(
    tmp_path: Path, options: tuple[str, ...], ran: str, asked: int
) -> None:
    done = run(tmp_path, TIERS, "-rP", *options)
    assert ran in done.stdout, done.stdout
    assert f"asked {asked}\n" in done.stdout


@pytest.mark.parametrize("path", sorted({*ALONE, *TOGETHER, *LONGEST}))
def test_a_place_that_is_named_in_the_order_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_processes_of_pytest_share_tests_by_units(tmp_path: Path) -> None:
    """Each line of the report names the process that ran a test."""
    shared = sorted(TOGETHER)[0]
    for file in (f"{shared}/test_a.py", f"{shared}/test_b.py", "tests/other/test_c.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("def test_it(): pass\n")
    spread = ["-n2", "--dist=loadfile", "--no-loadscope-reorder", "-v", f"--rootdir={tmp_path}"]
    done = pytest_in(tmp_path, "--import-mode=importlib", *spread, "tests")
    assert done.returncode == 0, done.stdout
    ran = [line.split() for line in done.stdout.splitlines() if line.startswith("[gw")]
    assert {line[0] for line in ran} == {"[gw0]", "[gw1]"}
    assert len({line[0] for line in ran if any(word.startswith(shared) for word in line)}) == 1, done.stdout
