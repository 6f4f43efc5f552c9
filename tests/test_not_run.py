"""What a machine cannot run is not passed over: every test that was left out is named, with the reason."""

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
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest", *options, str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


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
