"""A repository in a folder: versions come whole, never change, and go whole; nothing climbs out of it."""

import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegate.errors import IntegrityError, NotFoundError, RefusedError, UnfinishedError
from tidegate.publishing import steps
from tidegate.repository import Repository
from tidegate.triton.publishing import open_repository, read_published

from .entries import Entry, config, entry, publish, tree

ONE, TWO = entry(1), entry(2)


@pytest.fixture
def repository(root: Path) -> Repository:
    return open_repository(root)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda folder: (folder / "1/model.py").unlink(), "1/model.py is not there"),
        (lambda folder: (folder / "1/extra").write_text(""), "1/extra is in no manifest"),
        (lambda folder: os.truncate(folder / "1/weights/data", 9), "1/weights/data has 9 bytes instead of 65536"),
        (lambda folder: (folder / "1/weights/data").write_bytes(b"\0" * (1 << 16)), "1/weights/data has other content"),
        (lambda folder: (folder / "1/link").symlink_to("/etc/passwd"), "1/link is a link or a special file"),
        (lambda folder: (folder / "1/out").symlink_to("/", target_is_directory=True), "1/out is a link"),
        (lambda folder: os.mkfifo(folder / "1/pipe"), "1/pipe is a link or a special file"),
    ],
    ids=["missing", "stray", "truncated", "tampered", "link", "folder link", "pipe"],
)
def test_what_is_not_what_was_registered_never_comes_in(
    root: Path, repository: Repository, spoilt: Callable[[Path], object], said: str
) -> None:
    with repository.lock("m", "a test"):
        staged = repository.staging("m", 1)
        ONE.write(staged)
        spoilt(staged)
        with pytest.raises(IntegrityError, match=said):
            repository.publish("m", 1, staged, ONE.manifest, config(ONE, 1, [1]))
    assert tree(root) == {}


@pytest.mark.parametrize(
    "path", ["1/.entry/config.pbtxt", "2/model.py", "1", "99999999999999999999/x", "2024-11-01/x", "-1/x", " 1/x"]
)
def test_an_entry_that_would_lie_where_versions_do_is_refused(root: Path, path: str) -> None:
    hostile = Entry({path: b"", "config.pbtxt": ONE.files["config.pbtxt"]})
    with pytest.raises(IntegrityError, match="the entry has"):
        publish(root, hostile, 1)
    assert tree(root) == {}


def test_links_in_a_repository_are_not_followed(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    (root / "elsewhere").symlink_to("/etc", target_is_directory=True)
    with pytest.raises(IntegrityError, match="folder of model elsewhere is a link"):
        repository.files("elsewhere")
    (root / "m" / "1" / "link").symlink_to("/etc/passwd")
    with pytest.raises(IntegrityError, match="1/link is a link"):
        repository.files("m")
    (root / "m" / "config.pbtxt").unlink()
    (root / "m" / "config.pbtxt").symlink_to("/etc/passwd")
    with pytest.raises(IntegrityError, match=r"config\.pbtxt of model m is a link or a special file"):
        repository.config("m")


def test_nothing_is_written_through_a_link_that_others_laid(root: Path) -> None:
    publish(root, ONE, 1)
    mine = root.parent.parent / "mine"
    mine.write_text("mine")
    (root.parent / ".tidegate" / "models" / "m" / "partial").symlink_to(mine)
    publish(root, TWO, 2, [1, 2])
    assert mine.read_text() == "mine"
    assert tree(root)["m/labels.txt"] == TWO.files["labels.txt"]


def test_a_folder_without_a_configuration_has_one_before_a_version_comes_into_it(root: Path) -> None:
    (root / "m").mkdir()
    seen = []

    def look(when: str, step: str) -> None:
        if (when, step) == ("after", "rename 1 to 1"):
            seen.append(read_published((root / "m" / "config.pbtxt").read_text()).served)

    steps.watch(look)
    try:
        publish(root, ONE, 1)
    finally:
        steps.watch()
    assert seen == [()]
    assert read_published((root / "m" / "config.pbtxt").read_text()).served == (1,)


def test_a_model_is_put_away_in_the_place_of_one_that_was_put_away_before(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    state = root.parent / ".tidegate" / "models" / "m"
    for factor in ("one", "two"):  # whoever knows nothing of what is put away makes the folder anew
        with repository.lock("m", "a test"):
            repository.put_away("m", config(ONE, 1, [1]))
        shutil.copytree(state / "away", root / "m")
        (root / "m" / "1" / "factor").write_text(factor)
    with repository.lock("m", "a test"):
        repository.put_away("m", config(ONE, 1, [1]))
    assert not (root / "m").exists()
    assert repository.read("m", "1/factor") == b"two"
    with repository.lock("m", "a test"):
        assert list((state / "trash").iterdir()) == []


def test_what_the_configuration_may_need_stays(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    publish(root, TWO, 2, [1, 2])
    with repository.lock("m", "a test"):
        repository.write_config("m", config(ONE, 1, [2]))
        with pytest.raises(RefusedError, match="the configuration comes from it"):
            repository.remove_version("m", 1)
        (root / "m" / "config.pbtxt").write_text('name: "m" version_policy { all {} }')
        with pytest.raises(RefusedError, match="tidegate did not write the configuration"):
            repository.remove_version("m", 1)
        (root / "m" / "config.pbtxt").write_text("nonsense {")
        repository.withdraw("m")
    assert read_published(repository.config("m") or "").served == ()


def test_what_does_not_fit_is_told_before_it_is_fetched(repository: Repository) -> None:
    with (
        repository.lock("m", "a test"),
        pytest.raises(UnfinishedError, match=r"needs 1152921504606846976 bytes more, and [0-9]+ are free"),
    ):
        repository.staging("m", 1, size=1 << 60)


def test_strays_are_found(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    publish(root, TWO, 2, [1, 2])
    (root / "m" / "2" / "weights" / "stray").write_text("")
    (root / "m" / "1" / "weights" / "__pycache__").mkdir()
    (root / "m" / "1" / "weights" / "__pycache__" / "model.cpython-311.pyc").write_text("")
    (root / "m" / "labels.txt").write_text("other")
    (root / "m" / "notes" / "mine.txt").write_text("mine")
    publish(root, TWO, 7, [1, 2])
    (root / "m" / "labels.txt").write_text("other")
    assert repository.strays("m", {1: ONE.manifest, 2: TWO.manifest}) == [
        "1/weights/__pycache__/model.cpython-311.pyc is in no manifest "
        "(Python wrote it: Triton's mount of the repository should be read-only)",
        "2/weights/stray is in no manifest",
        "labels.txt is of no version that is served",
        "notes/2.txt is of no version that is served",
        "notes/mine.txt is of no version that is served",
        "version 7 is not registered",
    ]
    assert repository.strays("m", {1: ONE.manifest, 2: TWO.manifest, 7: TWO.manifest})[2:] == [
        "labels.txt is not as version 7 has it",
        "notes/mine.txt is of no version that is served",
    ]
    assert repository.differences("m", 1, ONE.manifest) == []
    assert repository.differences("m", 2, TWO.manifest) == ["2/weights/stray is in no manifest"]


def test_what_is_missing_or_changed_is_found_to_the_byte(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    (root / "m" / "labels.txt").unlink()
    (stray,) = repository.strays("m", {1: ONE.manifest})
    assert stray == "labels.txt is not there, which version 1 has beside its folder"
    publish(root, ONE, 1)
    assert repository.strays("m", {1: ONE.manifest}) == []
    for path in ONE.files:
        (root / "m" / "1").joinpath(".entry" if not path.startswith("1/") else "", path.removeprefix("1/")).write_bytes(
            ONE.files[path][:-1] + b"?"
        )
    assert len(repository.differences("m", 1, ONE.manifest)) == len(ONE.files)
    (root / "m" / "1" / "model.py").unlink()
    assert "1/model.py is not there" in repository.differences("m", 1, ONE.manifest)


@pytest.mark.parametrize("umask", [0o002, 0o077], ids=oct)
def test_everybody_may_read_it_whatever_the_umask(root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        publish(root, ONE, 1)
    finally:
        os.umask(before)
    for path in root.rglob("*"):
        wanted = 0o044 if path.is_file() else 0o055
        assert path.stat().st_mode & wanted == wanted, path
    for path in [*root.rglob("*"), *(root.parent / ".tidegate").rglob("*")] if umask == 0o002 else []:
        assert path.stat().st_mode & 0o020, path


@pytest.mark.parametrize("release", ["6.1.0", "5.4.0-aws"], ids=["all at once", "each by itself"])
def test_very_many_files_come_whole_too(root: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    many = {f"1/{number % 40}/{number}": str(number).encode() for number in range(300)}
    of = Entry(many | {"config.pbtxt": ONE.files["config.pbtxt"].replace(b'label_filename: "labels.txt"', b"")})
    publish(root, of, 1)
    assert open_repository(root).differences("m", 1, of.manifest) == []


def test_an_ensemble_has_a_version_folder_though_no_file_is_in_it(root: Path, repository: Repository) -> None:
    ensemble = Entry({"config.pbtxt": b'name: "m" platform: "ensemble"'})
    publish(root, ensemble, 4)
    assert sorted(tree(root)) == ["m/4/.entry/config.pbtxt", "m/4/.manifest.json", "m/config.pbtxt"]
    assert repository.versions("m") == [4]


def test_what_is_published_is_newer_than_all_that_was_there(root: Path) -> None:
    publish(root, ONE, 1)
    ahead = (root / "m" / "config.pbtxt").stat().st_mtime_ns + 3600 * 10**9
    os.utime(root / "m" / "config.pbtxt", ns=(ahead, ahead))
    publish(root, TWO, 2, [1, 2])
    assert (root / "m" / "2").stat().st_mtime_ns > ahead
    assert (root / "m" / "config.pbtxt").stat().st_mtime_ns > ahead


def test_a_repository_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        open_repository(tmp_path / "not-mounted")


def test_the_age_of_a_configuration_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    repository = open_repository(tmp_path / "models")
    with pytest.raises(NotFoundError):
        repository.config_age("m")
    (folder / "config.pbtxt").write_text("")
    os.utime(folder / "config.pbtxt", (time.time() - 600, time.time() - 600))
    assert 590 < repository.config_age("m") < 660
