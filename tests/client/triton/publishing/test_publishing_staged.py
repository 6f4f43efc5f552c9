"""What is proved of what was fetched, how often, and in which order with what is on the disk."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate import hashing
from tidegate.errors import IntegrityError
from tidegate.parallel import Progress
from tidegate.publishing import staged, steps
from tidegate.registry.manifest import manifest_of
from tidegate.registry.transfer import download
from tidegate.triton.publishing import open_repository
from tidegate_contracts.manifest import BESIDE, Manifest

from tests.client.shelf import Shelf

from .entries import Entry, config, entry, tree

ONE = entry(1)
MANY = Entry({**ONE.files} | {f"1/many/{number}": str(number).encode() for number in range(60)})


def publish(root: Path, of: Entry, between: Callable[[Path], object] = lambda _: None) -> list[int]:
    """Fetch and publish as `tidegate deploy` does; return the progress of publishing."""
    repository, told = open_repository(root), list[int]()
    with repository.lock("m", "a test"):
        folder = repository.staging("m", 1)
        download(
            Shelf({f"entry/{path}": content for path, content in of.files.items()}),
            "entry",
            of.manifest.files,
            folder,
            lambda _bytes: None,
        )
        between(folder)
        repository.publish("m", 1, folder, of.manifest, config(of, 1, [1]), told.append)
    return told


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that were read to be proved."""
    paths = []

    def hashed(file: Path, progress: Progress) -> tuple[int, str]:
        paths.append(str(file).partition("/staged/1/")[2])
        return hashing.hashed(file, progress)

    monkeypatch.setattr(staged, "hashed", hashed)
    return paths


@pytest.mark.parametrize("of", [ONE, MANY], ids=["few", "many"])
def test_what_this_process_hashed_while_it_wrote_it_is_not_read_again(root: Path, read: list[str], of: Entry) -> None:
    assert sum(publish(root, of)) == of.manifest.size
    assert read == []


def test_what_a_killed_run_has_left_is_proved_again_when_it_is_on_the_disk(root: Path, read: list[str]) -> None:
    folder = root.parent / ".tidegate" / "models" / "m" / "staged" / "1"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_bytes(ONE.files["1/model.py"])
    publish(root, ONE)
    assert read == ["1/model.py"]


def overwritten(file: Path) -> None:
    file.write_bytes(b"?" * file.stat().st_size)


def replaced(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"?" * file.stat().st_size)
    other.replace(file)


def in_its_middle(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(9)
        opened.write(b"?")


@pytest.mark.parametrize("change", [overwritten, replaced, in_its_middle], ids=lambda change: change.__name__)
def test_what_was_changed_since_is_refused_whatever_its_time(root: Path, change: Callable[[Path], None]) -> None:
    def spoil(folder: Path) -> None:
        file = folder / "1" / "weights" / "data"
        before = file.stat()
        change(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(IntegrityError, match="1/weights/data has other content"):
        publish(root, ONE, spoil)
    assert tree(root) == {}


@pytest.mark.parametrize("of", [ONE, MANY], ids=["few", "many"])
def test_all_is_on_the_disk_before_it_is_seen(root: Path, monkeypatch: pytest.MonkeyPatch, of: Entry) -> None:
    happened: list[str] = []
    fsync, sync_all, rename = os.fsync, steps.sync_all, Path.rename

    def seen_fsync(descriptor: int) -> None:
        fsync(descriptor)
        happened.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def seen_sync_all(folder: Path) -> bool:
        happened.append(f"all below {folder}")
        return sync_all(folder)

    def seen_rename(path: Path, target: Path) -> Path:
        happened.append(f"to {target}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(steps, "sync_all", seen_sync_all)
    monkeypatch.setattr(Path, "rename", seen_rename)
    publish(root, of)
    state = root.parent / ".tidegate" / "models" / "m"
    seen = happened.index(f"to {root / 'm'}")
    before, after = happened[:seen], happened[seen:]
    files = [f"{state}/staged/1/{path}" for path in of.files]
    assert f"all below {state}/staged/1" in before or set(files) <= set(before)
    assert f"{state}/partial" in before
    assert f"all below {state}/staged/1/1" in before or f"{state}/staged/1/1/weights" in before
    assert f"{state}/new" in before
    assert str(root) in after


@given(programs=st.sets(st.sampled_from(["1/model.py", "1/weights/data", "triton_python_backend_stub", "labels.txt"])))
@settings(max_examples=16, deadline=None)
def test_a_file_that_could_be_run_can_be_run_wherever_triton_reads_it(programs: set[str]) -> None:
    """Also beside the versions, where a copy of a client that lost the mode is replaced."""
    with TemporaryDirectory() as scratch:
        files = {**ONE.files, "triton_python_backend_stub": b""}
        source = Path(scratch, "m")
        for path, content in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(content)
            (source / path).chmod(0o744 if path in programs else 0o644)
        of = Entry(files, manifest=manifest_of(source))
        assert of.manifest == Manifest.model_validate_json(of.manifest.canonical())
        root = Path(scratch, "mount", "models")
        root.mkdir(parents=True)
        publish(root, of)
        model = root / "m"
        (model / "triton_python_backend_stub").chmod(0o644)
        repository = open_repository(root)
        with repository.lock("m", "a test"):
            repository.write_config("m", config(of, 1, [1]))
        for path in files:
            places = [model / "1" / path[2:]] if path.startswith("1/") else [model / path, model / "1" / BESIDE / path]
            for place in (each for each in places if path != "config.pbtxt"):
                assert bool(place.stat().st_mode & 0o111) == (path in programs), place
