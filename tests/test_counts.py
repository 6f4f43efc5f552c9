"""`make test` leaves thorough tests to `make test-all`, and asks properties fewer examples."""

from pathlib import Path

import pytest

from .test_not_run import run

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


@pytest.mark.parametrize(
    ("options", "ran", "asked"),
    [((), "2 passed, 1 deselected", 10), (("--thorough",), "3 passed", 80), (("--thorough", "-n1"), "3 passed", 80)],
    ids=["test", "test-all", "test-all with workers"],
)
def test_thorough_tests_and_all_examples_are_for_test_all(
    tmp_path: Path, options: tuple[str, ...], ran: str, asked: int
) -> None:
    file = tmp_path / "test_tiers.py"
    file.write_text(TIERS)
    done = run(file, "-rP", *options)
    assert ran in done.stdout, done.stdout
    assert f"asked {asked}\n" in done.stdout
