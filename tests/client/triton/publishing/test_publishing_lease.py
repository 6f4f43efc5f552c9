import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tidegate.errors import BusyError
from tidegate.publishing.lease import Lease
from tidegate.publishing.stores import FolderStore, ObjectStore, Store

from tests.client.triton.publishing.opening import open_repository

from .entries import config, entry, publish, tree
from .killing import expire

FOLDER = ".tidegate/models/m/lease"


@pytest.fixture
def store(where: Path | str) -> Store:
    return ObjectStore(where) if isinstance(where, str) else FolderStore(where)


def lease(store: Store, who: str, expiry_seconds: float = 60.0, beat_seconds: float = 10.0) -> Lease:
    return Lease(store, FOLDER, "m", who, expiry_seconds, beat_seconds)


@contextmanager
def another_process(work: Callable[[], None]) -> Iterator[int]:
    """Run the work in another process until it is killed."""
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


def hold(root: Path, who: str) -> None:
    with lease(FolderStore(root), who).held():
        signal.pause()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_free(store: Store, *times: float) -> bool:
    try:
        with lease(store, "Bob", *times).held():
            return True
    except BusyError:
        return False


def test_another_publisher_sees_the_holder_until_the_release(store: Store) -> None:
    ours = lease(store, "Ada")
    with ours.held():
        with pytest.raises(
            BusyError, match=r"Ada has been publishing since 2\d\d\d-\S+ \(process \d+ on \S+\)"
        ) as caught:
            lease(store, "Bob").held().__enter__()
        assert caught.value.retry_after is not None
        assert 0 < caught.value.retry_after <= ours.expiry_seconds
    for _ in range(3):
        assert is_free(store)
    assert len(store.sizes(FOLDER)) == 2


@pytest.mark.thorough
def test_a_lease_that_is_renewed_outlives_its_expiry(store: Store) -> None:
    with lease(store, "Ada", 2.0, 0.2).held():
        end = time.monotonic() + 3 * 2.0
        while time.monotonic() < end:
            assert not is_free(store, 2.0)
            time.sleep(0.05)
    assert is_free(store, 2.0)


def test_the_lease_of_a_killed_process_expires(root: Path) -> None:
    store = FolderStore(root)
    with another_process(lambda: hold(root, "Ada")):
        wait_for(lambda: any(b"Ada" in text for text in tree(root.parent).values()))
    assert not is_free(store)
    expire(root.parent)
    assert is_free(store)


def test_a_lease_of_the_far_future_has_expired(root: Path) -> None:
    store = FolderStore(root)
    store.put(f"{FOLDER}/lease-7", b"{}", create=True)
    assert not is_free(store)
    os.utime(root.parent / FOLDER / "lease-7", (2e10, 2e10))
    assert is_free(store)


def test_of_many_that_race_there_is_one_at_a_time(root: Path, tmp_path: Path) -> None:
    processes, turns = 4, 10
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(turns):
            while True:
                try:
                    with lease(FolderStore(root), "a racer").held():
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


def test_a_holder_that_was_stopped_for_long_writes_nothing_more(
    where: Path | str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(where, entry(1), 1)
    repository = open_repository(where)
    before = repository.config("m")
    monkeypatch.setattr(Lease, "_beat", lambda *_: None)  # like a stopped process
    with repository.lock("m", "Ada", expiry_seconds=5.0, beat_seconds=2.0):  # S3 has times in whole seconds
        staged = repository.staging("m", 2)
        entry(2).write(staged)
        wait_for(lambda: is_free(store, 5.0))
        for change in (
            lambda: repository.publish("m", 2, staged, entry(2).manifest, config(entry(2), 2, [1, 2])),
            lambda: repository.write_config("m", config(entry(1), 1, [1], prod=1)),
        ):
            with pytest.raises(BusyError, match="another publisher may be changing model"):
                change()
    assert (repository.versions("m"), repository.config("m")) == ([1], before)


@pytest.mark.parametrize("text", ["\0" * 50_000, "\x1b[2Jroot\n  do: run evil", ""])
def test_a_lease_that_is_nonsense_is_held_for_a_while(root: Path, text: str) -> None:
    FolderStore(root).put(f"{FOLDER}/lease-1", text.encode(), create=True)
    with pytest.raises(BusyError, match="another publisher holds the lease") as caught:
        publish(root, entry(1), 1)
    assert "evil" not in str(caught.value)
    expire(root.parent)
    assert publish(root, entry(1), 1) is True
