"""Tests that share servers run in one process of pytest, and those that take longest begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .order import ALONE, LONGEST, TOGETHER, place, unit

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", sorted({*ALONE, *TOGETHER, *LONGEST}))
def test_what_is_named_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_tests_of_a_folder_with_servers_are_a_unit_and_others_are_one_with_their_file() -> None:
    assert unit("tests/client/life/test_life_plan.py::test_a[1]") == "tests/client/life"
    assert unit("tests/cluster/test_up.py::test_b") == "tests/cluster"
    assert unit("tests/cluster/test_rollout_planes.py::test_c") == "tests/cluster/test_rollout_planes.py"
    assert unit("tests/stacks/test_load.py::test_d") == "tests/stacks/test_load.py"
    assert unit("tests/client/life_not/test_e.py::test_e") == "tests/client/life_not/test_e.py"


def test_the_longest_begin_and_others_keep_their_order() -> None:
    files = ["tests/charts/test_a.py", "tests/proxy/test_b.py", "tests/cluster/test_c.py", "tests/lab/bench/test_d.py"]
    assert [file[-4] for file in sorted(files, key=lambda file: place(f"{file}::test"))] == ["c", "b", "a", "d"]


def test_processes_of_pytest_share_tests_by_units(tmp_path: Path) -> None:
    """Each line of the report names the process that ran a test."""
    shared = sorted(TOGETHER)[0]
    for file in (f"{shared}/test_a.py", f"{shared}/test_b.py", "tests/other/test_c.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("def test_it(): pass\n")
    plugins = ["-p", "xdist", "-p", "no:cacheprovider", "-p", "tests.conftest", "--import-mode=importlib"]
    spread = ["-n2", "--dist=loadfile", "--no-loadscope-reorder", "-v", f"--rootdir={tmp_path}", "tests"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *spread],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},  # plugins take seconds
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    ran = [line.split() for line in done.stdout.splitlines() if line.startswith("[gw")]
    assert {line[0] for line in ran} == {"[gw0]", "[gw1]"}
    assert len({line[0] for line in ran if any(word.startswith(shared) for word in line)}) == 1, done.stdout
