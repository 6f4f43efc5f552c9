"""A run of the tests names skipped tests, `make test-all` has more, and tests with shared servers share a process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .order import TOGETHER, unit

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

drawn = []

@examples(80)
@given(strategies.integers())
def test_property(number):
    drawn.append(number)

@pytest.mark.thorough
def test_thorough():
    pass

def test_count():
    print("drawn", len(drawn))
"""


def run(folder: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the tests in a text with this project's hooks."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}  # Plugins take seconds.
    words = [*command, *options, str(folder / "test_it.py")]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_skipped_tests_are_listed_below_their_reason(tmp_path: Path) -> None:
    done = run(tmp_path, LOUD, "-n1")
    assert done.returncode == 0, done.stdout
    _, listed = done.stdout.split("= NOT RUN: NOTHING OF THE KIND IS HERE =")
    first, *names = [line for line in listed.splitlines() if "test_it.py" in line or "NOT RUN" in line][:4]
    assert first == "NOT RUN: NOTHING OF THE KIND IS HERE (it is not), so that it was not tried."
    assert [name.rpartition("::")[2] for name in names] == ["test_one[1]", "test_one[2]", "test_other"]


@pytest.mark.parametrize(
    ("options", "failed"),
    [
        pytest.param(("--require-all",), ["PULUMI", "TRITON"], id="nothing"),
        pytest.param(("--require-all", "--allow-not-run", "node pulumi"), ["TRITON"], id="one part"),
    ],
)
def test_a_run_can_fail_on_skipped_tests_except_for_named_parts(
    tmp_path: Path, options: tuple[str, ...], failed: list[str]
) -> None:
    done = run(tmp_path, PARTS, *options)
    assert (done.returncode != 0) == bool(failed), done.stdout
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert [name for line in failures for name in ("PULUMI", "TRITON") if name in line] == failed, done.stdout
    assert done.stdout.count("left out, and this run allows none to be: NOT RUN: ") >= len(failed)


def test_a_test_that_is_skipped_without_a_reason_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\ndef test_it():\n    pytest.skip('not today')\n")
    assert done.returncode != 0, done.stdout
    assert "left out in silence" in done.stdout


def test_ci_allows_the_engine_of_pulumi_alone_to_be_missing(tmp_path: Path) -> None:
    """It is the only part that no package registry has."""
    tools = tmp_path / "make"
    tools.write_text(f'#!/bin/sh\nexec {shutil.which("make")} --dry-run "$@"\n')
    tools.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "MAKEFLAGS": ""}
    done = subprocess.run([ROOT / ".ci/run"], env=environment, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if " -m pytest " in line]
    assert '--allow-not-run "$ALLOW_NOT_RUN"' in line
    assert "ALLOW_NOT_RUN=pulumi" in (ROOT / ".ci/run").read_text("utf-8").split()


@pytest.mark.parametrize(
    ("options", "ran", "drawn"),
    [((), "2 passed, 1 deselected", 10), (("--thorough",), "3 passed", 80)],
    ids=["test", "test-all"],
)
def test_thorough_tests_and_all_examples_are_for_test_all(
    tmp_path: Path, options: tuple[str, ...], ran: str, drawn: int
) -> None:
    done = run(tmp_path, TIERS, "-rP", *options)
    assert ran in done.stdout, done.stdout
    assert f"drawn {drawn}\n" in done.stdout


def test_tests_that_share_servers_run_in_one_process() -> None:
    shared = sorted(TOGETHER)[0]
    assert {unit(f"{shared}/test_a.py::test_one"), unit(f"{shared}/deep/test_b.py::test_two")} == {shared}
    assert unit("tests/other/test_c.py::test_three") == "tests/other/test_c.py"
