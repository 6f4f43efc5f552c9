import os
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.findings import Severity, errors
from tidegate.triton.entries.checks import check_entry
from tidegate.triton.entries.entry import MAX_CONFIG_BYTES, entries_in, read_entry

from .corpus_entries import CONFIG, MODEL, entry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return entry(tmp_path / "models", CONFIG, {"1/model.py": MODEL, "1/weights/a.bin": "12345"}, "fraud")


def test_an_entry_has_its_name_files_and_versions(folder: Path) -> None:
    for name in ("3", "10", "007", "labels"):
        (folder / name).mkdir()
    read = read_entry(folder)
    assert read.name == "fraud"
    assert [(file.path, file.size) for file in read.files] == [
        ("1/model.py", len(MODEL)), ("1/weights/a.bin", 5), ("config.pbtxt", len(CONFIG)),
    ]  # fmt: skip
    assert read.versions == (1, 3, 10)
    assert read.files_of(1) == {"model.py", "weights/a.bin"}
    assert read.where("output[0].dims") == "config.pbtxt:3"
    assert read.problems == ()
    assert read_entry(folder, "staged").name == "staged"


def test_an_entry_has_the_name_of_its_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "alias").symlink_to(folder)
    assert read_entry(folder.parent / "alias").name == "alias"
    monkeypatch.chdir(folder)
    assert read_entry(Path()).name == read_entry(Path("1/..")).name == "fraud"


def test_a_path_that_is_no_directory_is_a_usage_error(folder: Path) -> None:
    for wrong in (folder / "nowhere", folder / "config.pbtxt"):
        with pytest.raises(UsageError, match=str(wrong)):
            read_entry(wrong)


def test_links_and_pipes_are_named_and_never_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "1" / "link").symlink_to(tmp_path / "secret")
    (folder / "1" / "round").symlink_to(folder)
    (folder / "2").symlink_to(folder / "1")
    os.mkfifo(folder / "1" / "pipe")
    read = read_entry(folder)
    assert {problem.where for problem in read.problems} == {"1/link", "1/round", "2", "1/pipe"}
    assert "secret" not in str(read.files)
    assert len(read.files) == 3


def test_a_model_or_directory_instead_of_the_configuration_is_not_read(folder: Path) -> None:
    with (folder / "config.pbtxt").open("wb") as file:
        file.truncate(MAX_CONFIG_BYTES + 1)
    (problem,) = check_entry(folder)
    assert problem.where == "config.pbtxt"
    assert str(MAX_CONFIG_BYTES + 1) in problem.what
    (folder / "config.pbtxt").unlink()
    (folder / "config.pbtxt").mkdir()
    assert [problem.where for problem in errors(check_entry(folder))] == ["config.pbtxt"]


def test_latin_letters_in_a_comment_are_a_warning_and_in_a_value_an_error(folder: Path) -> None:
    """Triton accepts both, but clients of JSON or gRPC cannot send such a value."""
    (folder / "config.pbtxt").write_bytes(CONFIG.encode() + b"# caf\xe9\n")
    (problem,) = check_entry(folder)
    assert (problem.severity, problem.where) == (Severity.WARNING, "config.pbtxt:4")
    (folder / "config.pbtxt").write_bytes(CONFIG.encode() + b'metric_tags { key: "a" value: "caf\xe9" }\n')
    (problem,) = check_entry(folder)
    assert (problem.severity, problem.where) == (Severity.ERROR, "config.pbtxt:4")


def test_a_repository_is_all_of_its_entries(folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    (folder.parent / "guessed" / "1").mkdir(parents=True)
    assert entries_in(folder.parent) == [folder, folder.parent / "guessed"]
    assert entries_in(folder) == [folder]
    assert entries_in(folder.parent / "empty") == []
