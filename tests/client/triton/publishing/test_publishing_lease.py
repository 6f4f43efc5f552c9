"""One publisher at a time: two processes, two hosts, a holder that dies, one that was stopped for long."""

import errno
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tidegate.errors import BusyError
from tidegate.publishing import steps
from tidegate.publishing.lease import FolderLease
from tidegate.triton.publishing import open_repository

from .entries import config, entry, publish, tree


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, as some mounts of NFS and of object stores are."""

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@contextmanager
def another_process(work: Callable[[], None]) -> Iterator[int]:
    """Have a process of its own do something, until it is killed."""
    if (child := os.fork()) == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def hold(tmp_path: Path, who: str) -> None:
    with FolderLease("m", tmp_path, who).held():
        signal.pause()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_other_is_told_who_is_at_it_until_that_one_is_killed(tmp_path: Path) -> None:
    with another_process(lambda: hold(tmp_path, "Ada")) as ada:
        wait_for(lambda: "Ada" in tree(tmp_path).get("lease.json", b"").decode())
        told = rf"Ada is at it since 2\d\d\d-\S+ \(process {ada} on \S+\)"
        with pytest.raises(BusyError, match=told), FolderLease("m", tmp_path, "Bob").held():
            pass
    # Killed, it holds it no more.
    assert "Ada" in tree(tmp_path)["lease.json"].decode()
    with FolderLease("m", tmp_path, "Bob").held():
        assert json.loads(tree(tmp_path)["lease.json"])["who"] == "Bob"
    assert set(tree(tmp_path)) == {"lock"}


def test_a_holder_on_another_host_is_believed_as_long_as_it_renews_its_lease(tmp_path: Path) -> None:
    ada = {"who": "Ada", "host": "elsewhere", "process": 1, "since": "today", "kernel": "another", "token": "t"}
    (tmp_path / "lease.json").write_text(json.dumps(ada))
    with pytest.raises(BusyError, match="Ada is at it") as told, FolderLease("m", tmp_path, "Bob").held():
        pass
    assert told.value.retry_after is not None
    assert FolderLease.EXPIRY_SECONDS - 10 < told.value.retry_after <= FolderLease.EXPIRY_SECONDS
    long_ago = time.time() - FolderLease.EXPIRY_SECONDS - 1
    os.utime(tmp_path / "lease.json", (long_ago, long_ago))
    with FolderLease("m", tmp_path, "Bob").held():
        assert json.loads(tree(tmp_path)["lease.json"])["who"] == "Bob"


@pytest.mark.thorough
@pytest.mark.usefixtures("no_flock")
def test_without_flock_the_lease_alone_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FolderLease, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(FolderLease, "EXPIRY_SECONDS", 1.0)
    with another_process(lambda: hold(tmp_path, "Ada")):
        wait_for(lambda: "Ada" in tree(tmp_path).get("lease.json", b"").decode())
        end = time.monotonic() + 3
        while time.monotonic() < end:
            with pytest.raises(BusyError, match="Ada"), FolderLease("m", tmp_path, "Bob").held():
                pass

    def free() -> bool:
        try:
            with FolderLease("m", tmp_path, "Bob").held():
                return True
        except BusyError:
            return False

    assert not free()
    wait_for(free)


@pytest.mark.parametrize("flock", [True, False], ids=["with flock", "without flock"])
def test_of_many_that_race_there_is_one_at_a_time(tmp_path: Path, flock: bool, request: pytest.FixtureRequest) -> None:
    if not flock:
        request.getfixturevalue("no_flock")
    processes, turns = 4, 15
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(turns):
            while True:
                try:
                    with FolderLease("m", tmp_path, "a racer").held():
                        now = int(counter.read_text())
                        time.sleep(0.001)
                        counter.write_text(str(now + 1))
                    break
                except BusyError:
                    time.sleep(0.002)

    children = []
    for _ in range(processes):
        if (child := os.fork()) == 0:
            try:
                count()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert int(counter.read_text()) == processes * turns


def test_who_was_stopped_for_long_writes_nothing_more(root: Path) -> None:
    """Its lease was taken over meanwhile, from a host that knows nothing of its flock."""
    publish(root, entry(1), 1)
    before = tree(root)
    repository = open_repository(root)
    file = root.parent / ".tidegate" / "models" / "m" / "lease.json"
    with repository.lock("m", "Ada"):
        staged = repository.staging("m", 2)
        entry(2).write(staged)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"who": "Bob", "token": "Bob's"}))
        for change in (
            lambda: repository.publish("m", 2, staged, entry(2).manifest, config(entry(2), 2, [1, 2])),
            lambda: repository.write_config("m", config(entry(1), 1, [1], prod=1)),
        ):
            with pytest.raises(BusyError, match="Bob is at it"):
                change()
    assert tree(root) == before
    assert "Bob" in file.read_text()


def test_what_is_written_while_the_lease_is_taken_over_does_not_come_to_its_place(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(root, entry(1), 1)
    before = tree(root)
    repository, write = open_repository(root), steps.write
    file = root.parent / ".tidegate" / "models" / "m" / "lease.json"

    def slowly(to: Path, data: Path | bytes) -> None:
        write(to, data)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"who": "Bob", "token": "Bob's"}))

    with repository.lock("m", "Ada"):
        monkeypatch.setattr(steps, "write", slowly)
        with pytest.raises(BusyError, match="Bob is at it"):
            repository.write_config("m", config(entry(1), 1, [1], prod=1))
    assert tree(root) == before


def test_a_volume_that_fails_when_all_is_done_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FolderLease("m", tmp_path, "Ada").held():

        def stale(_lease: FolderLease) -> None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        monkeypatch.setattr(FolderLease, "_read", stale)
