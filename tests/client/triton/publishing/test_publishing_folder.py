import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate.errors import IntegrityError, NotFoundError, RefusedError, UnfinishedError
from tidegate.publishing import Repository, steps
from tidegate.registry.manifest import manifest_of
from tidegate.triton.publishing.config import read_published
from tidegate_contracts.manifest import BESIDE, Manifest

from tests.client.triton.publishing.opening import open_repository

from .entries import Entry, changing, config, entry, publish, tree

ONE, TWO = entry(1), entry(2)


@pytest.fixture
def repository(root: Path) -> Repository:
    return open_repository(root)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory with the same content, to which links point."""
    folder = tmp_path / "victim"
    for path in ("7/f", "m/7/f", "models/m/lock", "labels.txt", "notes/1.txt", "2/f", "1/.entry/f", "config.pbtxt"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("mine")
    return folder


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (lambda folder: (folder / "1/model.py").unlink(), "1/model.py is missing"),
        (lambda folder: (folder / "1/extra").write_text(""), "1/extra is in no manifest"),
        (lambda folder: os.truncate(folder / "1/weights/data", 9), "1/weights/data has 9 bytes instead of 65536"),
        (lambda folder: (folder / "1/link").symlink_to("/etc/passwd"), "1/link is a link or a special file"),
        (lambda folder: (folder / "1/out").symlink_to("/", target_is_directory=True), "1/out is a link"),
        (lambda folder: os.mkfifo(folder / "1/pipe"), "1/pipe is a link or a special file"),
    ],
    ids=["missing", "stray", "truncated", "link", "folder link", "pipe"],
)
def test_files_that_differ_from_the_registered_ones_are_never_published(
    root: Path, repository: Repository, spoilt: Callable[[Path], object], message: str
) -> None:
    with repository.lock("m", "a test"):
        staged = repository.staging("m", 1)
        ONE.write(staged)
        spoilt(staged)
        with pytest.raises(IntegrityError, match=message):
            repository.publish("m", 1, staged, ONE.manifest, config(ONE, 1, [1]))
    assert tree(root) == {}


@pytest.mark.parametrize(
    "path", ["1/.entry/config.pbtxt", "2/model.py", "1", "99999999999999999999/x", "2024-11-01/x", "-1/x", " 1/x"]
)
def test_an_entry_with_the_path_of_versions_is_refused(root: Path, path: str) -> None:
    hostile = Entry({path: b"", "config.pbtxt": ONE.files["config.pbtxt"]})
    with pytest.raises(IntegrityError, match="the entry has"):
        publish(root, hostile, 1)
    assert tree(root) == {}


def test_links_in_a_repository_are_not_followed(root: Path, repository: Repository, victim: Path) -> None:
    publish(root, ONE, 1)
    (root / "elsewhere").symlink_to("/etc", target_is_directory=True)
    with pytest.raises(IntegrityError, match="symbolic link"):
        repository.files("elsewhere")
    (root / "m" / "1" / "link").symlink_to("/etc/passwd")
    with pytest.raises(IntegrityError, match="1/link is a link"):
        repository.files("m")
    (root / "m" / "config.pbtxt").unlink()
    (root / "m" / "config.pbtxt").symlink_to("/etc/passwd")
    with pytest.raises(IntegrityError, match=r"m/config\.pbtxt is a link or a special file"):
        repository.config("m")
    shutil.rmtree(root / "m" / "1" / "weights")
    (root / "m" / "1" / "weights").symlink_to(victim)
    with pytest.raises(IntegrityError, match="symbolic link"):
        repository.read("m", "1/weights/config.pbtxt")


@pytest.mark.parametrize(
    "place",
    [".tidegate", ".tidegate/models", ".tidegate/models/m", *(f".tidegate/models/m/{name}" for name in (
        "trash", "staged", "staged/2", "lease")), "models/m/2", "models/m/notes", "models/m/1/.entry"],
)  # fmt: skip
def test_a_link_instead_of_a_directory_is_refused(root: Path, victim: Path, place: str) -> None:
    publish(root, ONE, 1)
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


@pytest.mark.parametrize("before", [True, False], ids=["a folder without a configuration", "no folder"])
def test_a_version_never_appears_before_its_configuration(root: Path, before: bool) -> None:
    if before:
        (root / "m").mkdir()
    seen = []

    def look(when: str, step: str) -> None:
        if (when, step) == ("after", "rename to 1"):
            seen.append(read_published((root / "m" / "config.pbtxt").read_text()).served)

    steps.watch(look)
    try:
        publish(root, ONE, 1)
    finally:
        steps.watch()
    assert seen == [()]
    assert read_published((root / "m" / "config.pbtxt").read_text()).served == (1,)


def test_a_version_comes_by_one_rename_when_all_of_it_is_on_the_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def seen_fsync(descriptor: int) -> None:
        fsync(descriptor)
        happened.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def seen_rename(path: Path, target: Path) -> Path:
        happened.append(f"to {target}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "rename", seen_rename)
    publish(root, ONE, 1)
    before = happened[: happened.index(f"to {root}/m/1")]
    staged = root.parent / ".tidegate" / "models" / "m" / "staged" / "1"
    assert {f"{staged}/{path}" for path in ONE.files} <= set(before)
    assert not any(each.startswith(f"to {root}/m/1") for each in before)
    assert f"{root}/m" in happened[len(before) :]


def test_files_that_the_configuration_can_name_stay(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    publish(root, TWO, 2, [1, 2])
    with repository.lock("m", "a test"):
        repository.write_config("m", config(ONE, 1, [2]))
        with pytest.raises(RefusedError, match="the configuration is based on it"):
            repository.remove_version("m", 1)
        (root / "m" / "config.pbtxt").write_text('name: "m" version_policy { all {} }')
        with pytest.raises(RefusedError, match="tidegate did not write the configuration"):
            repository.remove_version("m", 1)
        (root / "m" / "config.pbtxt").write_text("nonsense {")
        repository.withdraw("m")
    assert read_published(repository.config("m") or "").served == ()


def test_a_model_that_does_not_fit_is_refused_before_it_is_fetched(repository: Repository) -> None:
    with (
        repository.lock("m", "a test"),
        pytest.raises(UnfinishedError, match=r"needs 1152921504606846976 more bytes, but only [0-9]+ are free"),
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
        "(Python wrote it: mount the repository read-only in Triton)",
        "2/weights/stray is in no manifest",
        "labels.txt does not belong to a served version",
        "notes/2.txt does not belong to a served version",
        "notes/mine.txt does not belong to a served version",
        "version 7 is not registered",
    ]
    assert repository.strays("m", {1: ONE.manifest, 2: TWO.manifest, 7: TWO.manifest})[2:] == [
        "labels.txt differs from version 7",
        "notes/mine.txt does not belong to a served version",
    ]
    assert repository.differences("m", 1, ONE.manifest) == []
    assert repository.differences("m", 2, TWO.manifest) == ["2/weights/stray is in no manifest"]


def test_every_missing_or_changed_byte_is_found(root: Path, repository: Repository) -> None:
    publish(root, ONE, 1)
    (root / "m" / "labels.txt").unlink()
    (stray,) = repository.strays("m", {1: ONE.manifest})
    assert stray == "labels.txt is missing, but version 1 needs it"
    publish(root, ONE, 1)
    assert repository.strays("m", {1: ONE.manifest}) == []
    for path in ONE.files:
        file = (root / "m" / "1").joinpath(".entry" if not path.startswith("1/") else "", path.removeprefix("1/"))
        file.chmod(0o644)
        file.write_bytes(ONE.files[path][:-1] + b"?")
    assert len(repository.differences("m", 1, ONE.manifest)) == len(ONE.files)
    (root / "m" / "1" / "model.py").unlink()
    assert "1/model.py is missing" in repository.differences("m", 1, ONE.manifest)
    with pytest.raises(IntegrityError, match=r"1/model\.py is missing"):
        publish(root, ONE, 1)


@pytest.mark.parametrize("umask", [0o002, 0o077], ids=oct)
def test_all_users_can_read_it_under_any_umask(root: Path, umask: int) -> None:
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


@given(programs=st.sets(st.sampled_from(["1/model.py", "1/weights/data", "triton_python_backend_stub", "labels.txt"])))
@settings(max_examples=16, deadline=None)
def test_a_file_that_could_be_run_can_be_run_wherever_triton_reads_it(
    programs: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also next to the versions, where a copy that lost the mode is replaced."""
    scratch = tmp_path_factory.mktemp("programs")
    files = {**ONE.files, "triton_python_backend_stub": b""}
    source = scratch / "m"
    for path, content in files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(content)
        (source / path).chmod(0o744 if path in programs else 0o644)
    of = Entry(files, manifest=manifest_of(source))
    assert of.manifest == Manifest.model_validate_json(of.manifest.canonical())
    root = scratch / "mount" / "models"
    root.mkdir(parents=True)
    publish(root, of, 1)
    model = root / "m"
    (model / "triton_python_backend_stub").chmod(0o644)
    with changing(root) as repository:
        repository.write_config("m", config(of, 1, [1]))
    for path in files:
        places = [model / "1" / path[2:]] if path.startswith("1/") else [model / path, model / "1" / BESIDE / path]
        for place in (each for each in places if path != "config.pbtxt"):
            assert bool(place.stat().st_mode & 0o111) == (path in programs), place


def test_a_configuration_is_newer_than_the_previous_one_despite_wrong_clocks(root: Path) -> None:
    publish(root, ONE, 1)
    ahead = (root / "m" / "config.pbtxt").stat().st_mtime_ns + 3600 * 10**9
    os.utime(root / "m" / "config.pbtxt", ns=(ahead, ahead))
    publish(root, TWO, 2, [1, 2])
    assert (root / "m" / "config.pbtxt").stat().st_mtime_ns > ahead


def test_a_missing_repository_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        open_repository(tmp_path / "not-mounted")


def test_the_age_of_a_configuration_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    repository = open_repository(tmp_path / "models")
    with pytest.raises(NotFoundError):
        repository.config_age("m")
    (folder / "config.pbtxt").write_text("")
    os.utime(folder / "config.pbtxt", (time.time() - 600, time.time() - 600))
    assert 590 < repository.config_age("m") < 660
