"""The helpers by which components loop, branch and compose, on values that are known."""

import hashlib
import json

import pytest

from components.values import (
    checksum,
    each,
    either,
    entries,
    equals,
    flat,
    if_true,
    joined,
    json_text,
    listed,
    merged,
    needed,
    none_if_empty,
    number_in,
    of_kind,
    present,
    quotient,
    total,
    when,
)


def test_lists_and_mappings_are_looped_over_and_nothing_omits_the_field() -> None:
    assert each([1, 2], str) == listed([1, 2], str) == ["1", "2"]
    assert (each([], str), listed([], str)) == (None, [])
    assert each([0, 1], lambda number: if_true(number, lambda: number)) == [1]
    assert each([0], lambda number: if_true(number, lambda: number)) is None
    assert entries({"b": 1, "a": 2}, lambda key, value: f"{key}{value}") == ["a2", "b1"]
    assert entries({}, lambda key, value: f"{key}{value}") is None


def test_when_asks_for_presence_if_true_for_truth_and_of_kind_for_the_class() -> None:
    values: list[object] = ["", 0, False, None]
    assert [when(value, repr) for value in values] == ["''", "0", "False", None]
    assert [either(value, repr, lambda: "-") for value in values] == ["''", "0", "False", "-"]
    assert [present(value) for value in values] == [True, True, True, False]
    assert [if_true(flag, lambda: "yes", lambda: "no") for flag in (True, 7, False, 0)] == ["yes", "yes", "no", "no"]
    assert if_true(0, lambda: "yes") is None
    mixed: list[object] = ["text", 1, None]
    assert [of_kind(value, str, str.upper) for value in mixed] == ["TEXT", None, None]
    assert [of_kind(value, str, str.upper, lambda: "-") for value in mixed] == ["TEXT", "-", "-"]
    assert [equals("a", other) for other in "ab"] == [True, False]


def test_what_is_needed_is_there_or_says_why_it_must_be() -> None:
    assert needed("", "because") == ""
    with pytest.raises(ValueError, match="because"):
        needed(None, "because")


def test_lists_and_mappings_are_composed_and_later_keys_win() -> None:
    assert joined([1], None, (2, 3), []) == flat([[1], [], [2, 3]]) == [1, 2, 3]
    assert merged({"a": "1", "b": "1"}, None, {"b": "2"}) == {"a": "1", "b": "2"}
    assert merged({}, None) is None
    values: list[object] = [[], {}, (), None, [0], {"a": ""}]
    assert [none_if_empty(value) for value in values] == [None, None, None, None, [0], {"a": ""}]


def test_numbers_are_added_divided_rounding_up_and_read_out_of_texts() -> None:
    assert total(30, 20) == 50
    assert [quotient(number, 10) for number in (0, 1, 10, 11)] == [0, 1, 1, 2]
    assert number_in("1g.10gb", ".", "gb", 900) == 9000


@pytest.mark.parametrize("text", ["<&>", "\u2028\u2029", "grün 😀", 'a"b\\c\n\t', "plain"])
def test_a_file_is_json_as_go_writes_it(text: str) -> None:
    """What Go escapes is escaped, and nothing else: so Helm writes the same file. Keys are sorted."""
    found = json_text({"text": text, "b": None, "a": [], "c": {"d": None}})
    assert found.startswith('{\n  "a": [],\n  "c": {},\n  "text": "')
    assert json.loads(found) == {"text": text, "a": [], "c": {}}
    assert not set(found) & set("<>&\u2028\u2029")
    assert "\\u00fc" not in found


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 1.5])
def test_numbers_that_not_everybody_reads_alike_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="up to 2"):
        json_text({"number": number})
    assert json_text([2**53]) == "[\n  9007199254740992\n]\n"


def test_a_checksum_is_of_what_a_tree_says() -> None:
    expected = hashlib.sha256(b'{"a":"1","b":"\\u003c"}').hexdigest()
    assert checksum({"b": "<", "a": "1", "c": None}) == expected
