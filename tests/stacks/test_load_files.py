"""Files that are no definition at all are named for what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.load import load, parse
from stacks.problems import DefinitionError, Position, Problem


def refusal(path: Path | str) -> Problem:
    with pytest.raises(DefinitionError) as caught:
        load(path)
    (problem,) = caught.value.problems
    return problem


def only_problem_of(text: str) -> Problem:
    with pytest.raises(DefinitionError) as caught:
        parse(text, "f.yaml")
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n", "\ufeff"])
def test_an_empty_definition_is_said_to_be_empty(text: str) -> None:
    assert only_problem_of(text).what == "the file is empty"


@pytest.mark.parametrize(("text", "kind"), [("- a", "a list"), ("just words", "text"), ("3", "a number")])
def test_the_top_level_must_be_a_mapping(text: str, kind: str) -> None:
    problem = only_problem_of(text)
    assert problem.what.endswith(kind)
    assert problem.where == Position("f.yaml", 1, 1)


def test_a_missing_file_suggests_near_names(tmp_path: Path) -> None:
    (tmp_path / "inference.yaml").touch()
    problem = refusal(tmp_path / "inferense.yaml")
    assert "no such file" in problem.what
    assert "inference.yaml" in problem.do
    assert "no folder" in refusal(tmp_path / "nowhere" / "f.yaml").why
    assert "no such file" in refusal("").what


def test_a_folder_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "inference.yaml").touch()
    problem = refusal(tmp_path)
    assert "folder" in problem.what
    assert "inference.yaml" in problem.do


def test_any_refusal_of_the_system_is_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert "may not be read" in refusal("f.yaml").what


def test_names_that_no_file_can_have_are_refused() -> None:
    assert "name of a file" in refusal("a\0b").what
    assert "cannot be read" in refusal("x" * 5_000).what


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a: 1\nb\xff: 1\n", "byte 0xff at offset 6 (line 2)"),
        ("a: 1".encode("utf-16"), "UTF-16"),
        ("a: 1".encode("utf-32"), "UTF-32"),
        (b"a: 1\nb: \0\n", "U+0000"),
        (b"\x7fELF\x02\x01\x01\0\0", "U+007F"),
        (b"\x89PNG\r\n\x1a\n", "byte 0x89 at offset 0 (line 1)"),
        (b"a: \x1b[0m\n", "U+001B"),
    ],
)
def test_junk_is_named_for_what_it_is(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "f.yaml").write_bytes(data)
    problem = refusal(tmp_path / "f.yaml")
    assert words in problem.what
    assert problem.do


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "f.yaml").open("wb") as stream:
        stream.truncate(50_000_000_000)
    assert "larger than 10 MB" in refusal(tmp_path / "f.yaml").what
