"""Others may write the volume too: no link of theirs is followed, and no junk stops whoever publishes."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegate.errors import BusyError, IntegrityError
from tidegate.publishing.lease import FolderLease
from tidegate.triton.publishing import open_repository

from .entries import config, entry, publish, tree

ONE, TWO = entry(1), entry(2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository that has a version."""
    folder = tmp_path / "dataset" / "models"
    folder.mkdir(parents=True)
    publish(folder, ONE, 1)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder with all that would be taken for one's own."""
    folder = tmp_path / "victim"
    for path in ("7/f", "m/7/f", "models/m/lock", "labels.txt", "notes/1.txt", "2/f", "1/.entry/f", "config.pbtxt"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("mine")
    return folder


STATE = ("new", "trash", "staged", "staged/2", "staged/2/1", "staged/2/1/.entry", "lock", "lease.json")


@pytest.mark.parametrize(
    "place",
    [".tidegate", ".tidegate/models", ".tidegate/models/m", *(f".tidegate/models/m/{name}" for name in STATE),
     "models/m/2", "models/m/notes", "models/m/1/.entry"],
)  # fmt: skip
def test_a_link_in_the_place_of_a_folder_is_refused(root: Path, victim: Path, place: str) -> None:
    before = tree(victim)
    laid = root.parent / place
    if laid.is_dir():
        shutil.rmtree(laid)
    laid.unlink(missing_ok=True)
    laid.parent.mkdir(parents=True, exist_ok=True)
    laid.symlink_to(victim)
    with pytest.raises(IntegrityError, match="link"):
        publish(root, TWO, 2, [1, 2])
    assert tree(victim) == before
    assert b"mine" not in tree(root).values()


def test_what_lies_behind_a_link_is_not_read(root: Path, victim: Path) -> None:
    shutil.rmtree(root / "m" / "1" / "weights")
    (root / "m" / "1" / "weights").symlink_to(victim)
    with pytest.raises(IntegrityError, match="symbolic link"):
        open_repository(root).read("m", "1/weights/config.pbtxt")


def test_what_cannot_be_deleted_stops_nobody(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trash = root.parent / ".tidegate" / "models" / "m" / "trash"
    deep = trash / "one"
    deep.mkdir()
    for _ in range(1500):
        monkeypatch.chdir(deep)
        deep = Path("d")
        deep.mkdir()
    monkeypatch.chdir(root)
    try:
        assert publish(root, TWO, 2, [1, 2]) is True
    finally:
        subprocess.run(["rm", "-r", trash], check=True)  # it goes deeper than Python


@pytest.mark.parametrize("lay", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
@pytest.mark.parametrize("name", ["lock", "lease.json"])
def test_what_is_no_lease_is_told_and_not_waited_for(root: Path, name: str, lay: Callable[[Path], None]) -> None:
    path = root.parent / ".tidegate" / "models" / "m" / name
    path.unlink(missing_ok=True)
    lay(path)
    with pytest.raises(IntegrityError, match="no file"):
        publish(root, TWO, 2, [1, 2])


@pytest.mark.parametrize("said", ["[" * 200_000, json.dumps({"who": "\x1b[2Jroot\n  do: run evil"}), "", "{}"])
def test_a_lease_that_says_nonsense_is_somebodys_for_a_while(root: Path, said: str) -> None:
    path = root.parent / ".tidegate" / "models" / "m" / "lease.json"
    path.write_text(said)
    with pytest.raises(BusyError, match="somebody is at it") as told:
        publish(root, TWO, 2, [1, 2])
    assert "evil" not in str(told.value)
    os.utime(path, (0, 0))
    assert publish(root, TWO, 2, [1, 2]) is True


def test_a_lease_of_the_future_expires_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FolderLease, "EXPIRY_SECONDS", 0.2)
    path = root.parent / ".tidegate" / "models" / "m" / "lease.json"
    path.write_text("{}")
    os.utime(path, (2e9, 2e9))
    with pytest.raises(BusyError) as told:
        publish(root, TWO, 2, [1, 2])
    assert told.value.retry_after == 0.2
    os.utime(path, (path.stat().st_mtime - 1,) * 2)  # as time goes by
    assert publish(root, TWO, 2, [1, 2]) is True
    assert open_repository(root).config("m") == config(TWO, 2, [1, 2])
