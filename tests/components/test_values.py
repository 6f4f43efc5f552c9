"""What helpers of components refuse.

How they compute, loop, branch and write files is shown by the rendered files of `expected`, and by the chart, which
equals them.
"""

import pytest

from components.values import needed, of_kinds


def test_what_is_needed_is_there_or_says_why_it_must_be() -> None:
    assert needed("", "because") == ""
    with pytest.raises(ValueError, match="because"):
        needed(None, "because")


def test_a_class_without_a_branch_is_an_error() -> None:
    assert of_kinds("text", {int: lambda _: "number", str: lambda _: "text"}) == "text"
    with pytest.raises(TypeError, match="no branch for float"):
        of_kinds(1.5, {int: lambda _: "number", str: lambda _: "text"})
