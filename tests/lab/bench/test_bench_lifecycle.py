"""What the benchmark of a model's life says about what it measured."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.bench.lifecycle import endpoint, memory, publishing, registering
from lab.bench.lifecycle.__main__ import PARTS
from lab.bench.lifecycle.effort import MB, QUICK, ROOT, Effort
from lab.bench.lifecycle.entries import make_entry
from lab.bench.lifecycle.rows import GOALS
from lab.bench.report import Found, NotHereError, last_line


def test_an_entry_has_files_of_these_sizes(tmp_path: Path) -> None:
    entry = make_entry(tmp_path, "two", [5, 3 << 20])
    weights = sorted((entry / "1" / "weights").iterdir())
    assert [file.stat().st_size for file in weights] == [5, 3 << 20]
    assert (entry / "config.pbtxt").is_file()


@pytest.mark.parametrize(("takes", "least", "most"), [(1, 1, 60), (200, 200, 260)], ids=["little", "much"])
def test_the_memory_of_a_program_is_its_own_and_not_that_of_whoever_began_it(
    tmp_path: Path, takes: int, least: int, most: int
) -> None:
    ours = b"x" * (300 * MB)
    (tmp_path / "program.py").write_text(f"import sys\nb'x' * {takes * MB}\nsys.exit(int(sys.argv[1]))\n", "utf-8")
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", memory.__name__, str(tmp_path / "told"), "program", "3"]
    done = subprocess.run(command, cwd=ROOT, env=paths, timeout=60, check=False)
    assert done.returncode == 3
    assert least * MB < int((tmp_path / "told").read_text("ascii")) < most * MB < len(ours)


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        (publishing.measure, {"publish_small_vs_cp", "publish_large_vs_cp", "publish_mb_per_s"}),
        (registering.measure, {"register_rss_mb", "register_rss_growth"}),
        (
            endpoint.measure,
            {"triton_model_vs_client", "pyfunc_vs_client", "triton_model_rss_mb", "triton_model_import_s"},
        ),
    ],
    ids=["publishing", "registering", "endpoint"],
)
def test_each_part_measures_its_figures(part: Callable[[Effort], Found], figures: set[str]) -> None:
    try:
        found = part(QUICK)
    except NotHereError as error:
        pytest.skip(f"NOT RUN: {error}, so that this part of the benchmark was not tried")
    assert figures <= set(found.figures)
    assert all(figure > 0 for figure in found.figures.values())
    assert set(found.figures) <= set(GOALS)


def test_the_last_line_has_every_key_and_null_for_what_was_not_measured() -> None:
    found = last_line(GOALS, {"endpoint": Found({"triton_model_vs_client": 0.91249})})
    assert list(found) == list(GOALS)
    assert {key: value for key, value in found.items() if value is not None} == {"triton_model_vs_client": 0.912}


def test_a_part_that_there_is_not_is_refused() -> None:
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "lab.bench.lifecycle", "--only", "flying"],
        cwd=ROOT, env=paths, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert all(name in done.stderr for name in PARTS)
    assert json.dumps(None) not in done.stdout
