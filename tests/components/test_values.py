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


def test_each_omits_an_empty_list_and_listed_writes_it() -> None:
    assert each([1, 2], str) == listed([1, 2], str) == ["1", "2"]
    assert each([], str) is None
    assert listed([], str) == []


def test_each_leaves_out_what_is_left_out() -> None:
    assert each([0, 1], lambda number: if_true(number, lambda: number)) == [1]
    assert each([0], lambda number: if_true(number, lambda: number)) is None


def test_when_asks_for_presence_and_not_for_truth() -> None:
    values: list[object] = ["", 0, False, None]
    assert [when(value, repr) for value in values] == ["''", "0", "False", None]
    assert [either(value, repr, lambda: "-") for value in ("", 0, None)] == ["''", "0", "-"]
    assert [present(value) for value in ("", 0, None)] == [True, True, False]


def test_where_asks_for_truth() -> None:
    assert if_true(True, lambda: "yes", lambda: "no") == if_true(7, lambda: "yes") == "yes"
    assert if_true(False, lambda: "yes", lambda: "no") == "no"
    assert if_true(0, lambda: "yes") is None


def test_of_kind_tells_classes_apart() -> None:
    assert of_kind("text", str, str.upper) == "TEXT"
    assert of_kind(1, str, str.upper) is None
    assert of_kind(None, str, str.upper) is None


def test_of_kind_makes_something_else_of_what_is_of_no_such_class() -> None:
    assert of_kind(1, str, str.upper, lambda: "-") == of_kind(None, str, str.upper, lambda: "-") == "-"
    assert of_kind("a", str, str.upper, lambda: "-") == "A"


def test_entries_are_made_by_key() -> None:
    assert entries({"b": 1, "a": 2}, lambda key, value: f"{key}{value}") == ["a2", "b1"]
    assert entries({}, lambda key, value: f"{key}{value}") is None


def test_what_is_needed_is_there_or_says_why_it_must_be() -> None:
    assert needed("", "because") == ""
    with pytest.raises(ValueError, match="because"):
        needed(None, "because")


def test_a_number_is_read_out_of_a_text() -> None:
    assert number_in("1g.10gb", ".", "gb", 900) == 9000


def test_empty_lists_and_mappings_are_nothing() -> None:
    nothing: list[object] = [[], {}, (), None]
    assert [none_if_empty(value) for value in nothing] == [None] * 4
    assert [none_if_empty(value) for value in ([0], {"a": ""})] == [[0], {"a": ""}]


def test_lists_are_joined_and_flattened() -> None:
    assert joined([1], None, (2, 3), []) == flat([[1], [], [2, 3]]) == [1, 2, 3]


def test_mappings_are_merged_and_later_ones_win() -> None:
    assert merged({"a": "1", "b": "1"}, None, {"b": "2"}) == {"a": "1", "b": "2"}
    assert merged({}, None) is None


def test_numbers_are_added_and_divided_rounding_up() -> None:
    assert total(30, 20) == 50
    assert [quotient(number, 10) for number in (0, 1, 10, 11)] == [0, 1, 1, 2]
    assert equals("a", "a")
    assert not equals("a", "b")


def test_a_file_is_sorted_and_without_what_is_missing() -> None:
    assert json_text({"b": None, "a": [], "c": {"d": None}}) == '{\n  "a": [],\n  "c": {}\n}\n'


@pytest.mark.parametrize("text", ["<&>", "\u2028\u2029", "grün 😀", 'a"b\\c\n\t', "plain"])
def test_a_file_is_json_as_go_writes_it(text: str) -> None:
    """What Go escapes is escaped, and nothing else: so Helm writes the same file."""
    found = json_text({"text": text})
    assert json.loads(found) == {"text": text}
    assert not set(found) & set("<>&\u2028\u2029")
    assert "\\u00fc" not in found


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 1.5])
def test_numbers_that_not_everybody_reads_alike_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="up to 2"):
        json_text({"number": number})
    assert json_text([2**53]) == "[\n  9007199254740992\n]\n"


def test_a_checksum_is_of_what_a_tree_says() -> None:
    expected = hashlib.sha256(b'{"a":"1","b":"<"}'.replace(b"<", b"\\u003c")).hexdigest()
    assert checksum({"b": "<", "a": "1", "c": None}) == expected
