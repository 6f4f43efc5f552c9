"""Every field of three environments is what a reviewer once read and found right."""

import pytest

from .expected import CASES, FOLDER, rendered


@pytest.mark.parametrize("name", CASES)
def test_an_environment_is_rendered_as_it_was_reviewed(name: str) -> None:
    expected = (FOLDER / f"{name}.yaml").read_text()
    assert rendered(name) == expected, "if this is meant: python -m tests.components.expected, and read the difference"
