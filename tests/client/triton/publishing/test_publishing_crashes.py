"""A publisher that dies or fails anywhere leaves the old or the new version complete, and the next run completes.
test_life_interrupted.py covers this with a real Triton."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tidegate.errors import TidegateError, UnfinishedError, UnreachableError
from tidegate.publishing import steps
from tidegate.triton.publishing.config import read_published

from tests.client.triton.publishing.opening import open_repository

from .entries import changing, config, entry, publish, tree
from .killing import expire, killed

ONE, TWO = entry(1), entry(2)
MANIFESTS = {1: ONE.manifest, 2: TWO.manifest}
TMPFS_MB = 4


def a_new_model(root: Path) -> None:
    publish(root, ONE, 1, prod=1)


def a_second_version(root: Path) -> None:
    publish(root, TWO, 2, [1, 2], prod=1)


def moving_the_alias(root: Path) -> None:
    with changing(root) as repository:
        repository.write_config("m", config(TWO, 2, [1, 2], prod=2))


def back_to_the_first(root: Path) -> None:
    with changing(root) as repository:
        repository.write_config("m", config(ONE, 1, [1, 2], prod=1))


def removing_the_second(root: Path) -> None:
    with changing(root) as repository:
        repository.write_config("m", config(ONE, 1, [1], prod=1))
        repository.remove_version("m", 2)


def taking_it_out(root: Path) -> None:
    with changing(root) as repository:
        repository.withdraw("m")
        repository.remove_model("m")


LIFE: list[Callable[[Path], None]] = [
    a_new_model, a_second_version, moving_the_alias, back_to_the_first, removing_the_second, taking_it_out
]  # fmt: skip
Work = Callable[[Path], None]
QUICK = (a_new_model, a_second_version)


@pytest.fixture
def begun(tmp_path: Path, work: Work) -> Path:
    (tmp_path / "before" / "models").mkdir(parents=True)
    for earlier in LIFE[: LIFE.index(work)]:
        earlier(tmp_path / "before" / "models")
    return tmp_path / "before"


def copy(dataset: Path) -> Path:
    target = dataset.with_name("copy")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(dataset, target)
    return target / "models"


def assert_whole(root: Path, before: dict[str, bytes], after: dict[str, bytes]) -> None:
    there, repository = tree(root), open_repository(root)
    assert [path.name for path in root.iterdir()] in ([], ["m"])
    for number in repository.versions("m"):
        assert repository.differences("m", number, MANIFESTS[number]) == []
    found = there.get("m/config.pbtxt")
    if found is None:
        assert there == {}
        return
    published = read_published(found.decode())
    assert found in (before.get("m/config.pbtxt"), after.get("m/config.pbtxt")) or not published.served
    assert {*published.served} <= set(repository.versions("m"))
    for path, content in there.items():
        assert content in (before.get(path), after.get(path)) or path == "m/config.pbtxt", path


@pytest.mark.parametrize(
    ("work", "number", "kind"),
    [
        pytest.param(work, *fault, marks=() if fault[0] == 0 and work in QUICK else pytest.mark.thorough)
        for work in LIFE
        for fault in ((0, TidegateError), (errno.ENOSPC, UnfinishedError), (errno.ESTALE, UnreachableError))
    ],
)
def test_a_kill_or_a_failed_volume_at_any_step_leaves_the_old_or_the_new(
    begun: Path, work: Work, number: int, kind: type[TidegateError]
) -> None:
    before = tree(begun / "models")
    expected = copy(begun)
    work(expected)
    after = tree(expected)
    for place in count():  # Files are written in parallel, so runs differ in order, and slightly in number.
        root = copy(begun)
        if not (fails_at(place, number, kind, partial(work, root)) if number else killed(partial(work, root), place)):
            break
        assert_whole(root, before, after)
        expire(root.parent)
        work(root)
        assert tree(root) == after, place
        left = [path for path in tree(root.parent / ".tidegate") if "/lease/" not in path]
        assert left == [], place
    assert place > 3
    assert tree(root) == after


def fails_at(place: int, number: int, kind: type[TidegateError], work: Callable[[], None]) -> bool:
    """Let the n-th event fail, and check that it is reported, unless only the release of the lease failed. On a full
    volume the lease is tried twice. Return False if the work has fewer events."""
    left = iter(range(place, -1, -1))
    failed: list[str] = []

    def fail(when: str, step: str) -> None:
        if when == "after" and step.startswith("create lease-"):
            return  # a lease that could not be written does not exist
        if next(left, None) == 0:
            failed.append(step)
            raise OSError(number, os.strerror(number))

    reported = ""
    steps.watch(fail)
    try:
        work()
    except kind as error:
        reported = str(error)
    finally:
        steps.watch()
    may_pass = ("free-", "lease-", "make ") if number == errno.ENOSPC else ("free-",)
    assert not failed or os.strerror(number) in reported or any(each in failed[0] for each in may_pass), failed
    return bool(failed)


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", f"size={TMPFS_MB}m", "tmpfs", str(folder)]
    if mount is None or subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("NOT RUN: ONLY ROOT MAY MOUNT A FILE SYSTEM HERE, so no test filled one.")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_on_a_full_volume_versions_can_still_be_removed(small_volume: Path) -> None:
    root = small_volume / "models"
    root.mkdir()
    publish(root, ONE, 1, prod=1)
    publish(root, TWO, 2, [1, 2], prod=1)
    back_to_the_first(root)
    with changing(root) as repository:
        repository.write_config("m", config(ONE, 1, [1], prod=1))
        fill(small_volume)
    with changing(root) as repository:
        repository.remove_version("m", 2)
    assert repository.versions("m") == [1]


def fill(volume: Path) -> Path:
    full = volume / "full"
    with suppress(OSError), full.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(volume).free == 0
    return full
