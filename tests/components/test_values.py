"""The helpers with which components compute and write files, with known values. The rendered files of `expected`, and
the chart, which equals them, test loops, branches and composition."""

import json

import pytest

from components.values import json_text, needed, of_kinds, quotient, total


def test_a_required_value_is_returned_or_its_reason_raised() -> None:
    assert needed("", "because") == ""
    with pytest.raises(ValueError, match="because"):
        needed(None, "because")


def test_a_class_without_a_branch_is_an_error() -> None:
    assert of_kinds("text", {int: lambda _: "number", str: lambda _: "text"}) == "text"
    with pytest.raises(TypeError, match="no branch for float"):
        of_kinds(1.5, {int: lambda _: "number", str: lambda _: "text"})


def test_numbers_are_added_and_divided_rounding_up() -> None:
    assert total(30, 20) == 50
    assert [quotient(number, 10) for number in (0, 1, 10, 11)] == [0, 1, 1, 2]


@pytest.mark.parametrize("text", ["<&>", "\u2028\u2029", "grün 😀", 'a"b\\c\n\t', "plain"])
def test_a_file_is_json_as_go_writes_it(text: str) -> None:
    """It has the same escapes as Go's JSON, so Helm writes the same file. Keys are sorted."""
    found = json_text({"text": text, "b": None, "a": [], "c": {"d": None}})
    assert found.startswith('{\n  "a": [],\n  "c": {},\n  "text": "')
    assert json.loads(found) == {"text": text, "a": [], "c": {}}
    assert not set(found) & set("<>&\u2028\u2029")
    assert "\\u00fc" not in found
