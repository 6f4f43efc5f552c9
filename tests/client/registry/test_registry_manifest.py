import hashlib
import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.kinds import KINDS
from tidegate.registry.manifest import checked_name, manifest_of, path_on_disk
from tidegate_contracts.manifest import is_inside

from .entries import contents, entry, program

STEPS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda step: step not in (".", "..") and "/" not in step and "\0" not in step
)


@given(names=st.sets(STEPS, min_size=1, max_size=6), size=st.integers(0, 3 << 20))
def test_every_file_is_in_it_with_its_digest_or_the_entry_is_refused(names: set[str], size: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = entry(Path(scratch), "m")
        for name in names:
            (root / "1" / name).write_bytes(b"x" * size if name == min(names) else name.encode())
        refused = [name for name in names if not is_inside(name) or {*name} & {*"#%?"}]
        if refused:
            with pytest.raises(UsageError, match="cannot be registered"):
                manifest_of(root)
            return
        caught: list[int] = []
        manifest = manifest_of(root, progress=caught.append)
        there = contents(root)
        assert sum(caught) == manifest.size
        assert {file.path: (file.size, file.sha256) for file in manifest.files} == {
            path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in there.items()
        }
        assert manifest.model == "m"
        assert manifest.size == sum(map(len, there.values()))


def test_the_version_directory_can_have_any_number_and_can_be_missing(tmp_path: Path) -> None:
    root = entry(tmp_path, "m")
    first = manifest_of(root)
    (root / "1").rename(root / "42")
    assert manifest_of(root) == first
    assert KINDS["triton"].version_folder(root) == "42"
    assert path_on_disk(root, "42", "1/model.py").read_bytes() == program(1)
    assert path_on_disk(root, "42", "1") == root / "1"
    (root / "43").mkdir()
    with pytest.raises(UsageError, match="version directories 42, 43"):
        manifest_of(root)
    ensemble = tmp_path / "ensemble"
    (ensemble / "1").mkdir(parents=True)
    (ensemble / "config.pbtxt").write_text('platform: "ensemble"')
    assert [file.path for file in manifest_of(ensemble).files] == ["config.pbtxt"]


def test_the_directory_gives_the_name_unless_the_user_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = entry(tmp_path, "m")
    monkeypatch.chdir(root)
    assert manifest_of(Path()).model == "m"
    assert manifest_of(Path(), "other").model == "other"


def test_an_entry_cannot_have_the_name_of_a_client_model() -> None:
    with pytest.raises(UsageError, match="cannot be a model's name"):
        checked_name("m-client")
    assert checked_name("client") == "client"


def test_links_and_special_files_are_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (what, words) in enumerate(
        {"link": "symbolic link", "pipe": "neither a file nor", "socket": "neither"}.items()
    ):
        root = entry(tmp_path, f"m{number}")
        place = root / "1" / what
        if what == "link":
            place.symlink_to("/etc/passwd")
        elif what == "pipe":
            os.mkfifo(place)
        else:
            with socket.socket(socket.AF_UNIX) as listening:
                monkeypatch.chdir(place.parent)  # the name of a socket must be short
                listening.bind(place.name)
        with pytest.raises(UsageError, match=words) as caught:
            manifest_of(root)
        assert caught.value.where == str(place)
    (entry(tmp_path, "m") / "configs").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="symbolic link"):
        manifest_of(tmp_path / "m")


def test_names_that_no_store_takes_are_refused(tmp_path: Path) -> None:
    root = entry(tmp_path, "m")
    deep = root / "1" / "/".join(["d" * 100] * 9)
    deep.mkdir(parents=True)
    (deep / "f").touch()
    with pytest.raises(UsageError, match="too long"):
        manifest_of(root)
    other = entry(tmp_path, "other")
    with open(os.fsencode(other / "1") + b"/\xff", "wb"):
        pass
    with pytest.raises(UsageError, match="not valid UTF-8"):
        manifest_of(other)


def test_a_directory_without_an_entry_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        manifest_of(tmp_path / "missing")
    root = entry(tmp_path, "m")
    (root / "config.pbtxt").rename(root / "1" / "config.pbtxt")
    with pytest.raises(UsageError, match=r"has no config\.pbtxt") as caught:
        manifest_of(root)
    assert "next to the version directory" in caught.value.do
