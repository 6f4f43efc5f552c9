import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.load import load
from stacks.problems import DefinitionError, Problem
from tests.counts import examples


def refusal(path: Path | str) -> Problem:
    with pytest.raises(DefinitionError) as caught:
        load(path)
    (problem,) = caught.value.problems
    return problem


def test_a_missing_file_suggests_a_near_name_and_a_directory_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "inference.yaml").touch()
    problem = refusal(tmp_path / "inferense.yaml")
    assert "no such file" in problem.what
    assert problem.do == f'Did you mean "{tmp_path}/inference.yaml"?'
    (tmp_path / "link.yaml").symlink_to("gone.yaml")
    assert "link.yaml" not in refusal(tmp_path / "link.yaml").do
    assert "no such file" in refusal(tmp_path / "nowhere" / "f.yaml").what
    assert "directory" in refusal(tmp_path).what
    assert "name of a file" in refusal("a\0b").what
    assert "cannot be read" in refusal("x" * 5_000).what


def test_an_error_of_the_system_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("os.listdir", refused)
    assert "no such file" in refusal(tmp_path / "f.yaml").what
    monkeypatch.setattr("builtins.open", refused)
    assert "cannot be read" in refusal("f.yaml").what


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a: 1\nb\xff: 1\n", "byte 0xff at offset 6 (line 2)"),
        ("a: 1".encode("utf-16"), "is not UTF-8"),
        (b"a: 1\nb: \0\n", "U+0000"),
        (b"\x7fELF\x02\x01\x01\0\0", "U+007F"),
        (b"\x89PNG\r\n\x1a\n", "byte 0x89 at offset 0 (line 1)"),
    ],
)
def test_invalid_files_are_reported_by_their_kind(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    problem = refusal(path)
    assert words in problem.what
    assert problem.do
    os.truncate(path, 50_000_000_000)
    assert "larger than 10 MB" in refusal(path).what


@examples(400)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_definition_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.yaml"
    path.write_bytes(data)
    try:
        load(path)
    except DefinitionError as error:
        assert str(error)  # noqa: PT017 – a file may as well be good
