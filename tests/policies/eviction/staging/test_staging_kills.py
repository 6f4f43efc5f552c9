"""A policy is killed, or its volume fails, at any change of the directory: no partial copy is ever visible."""

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tidegate_eviction.staging.copying import StagingError

from .rig import Rig, files_below, write_model

CHANGES = frozenset({"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.chmod"})
"""Python's audit events before a change of a directory. `os.replace` is reported as a rename."""


def contents(root: Path) -> dict[str, list[dict[str, bytes]]]:
    """Return all contents of each model, the last one last. The source has it at the end."""
    found = {}
    for name, words in {"a": (b"first", b"second"), "b": (b"b",)}.items():
        found[name] = [files_below(write_model(root, name, word).parent) for word in words]
    return found


def live(root: Path) -> Rig:
    """Stage one model, another one in its place, the first one with new content, and again after a failed load. Skip
    failures."""
    rig = Rig(root)

    async def work() -> None:
        write_model(root, "a", b"first")
        stager = rig.make(rig.room_for("a"))

        with suppress(OSError):
            stager.open()
        for step in (
            lambda: rig.load("a"),
            lambda: rig.load("b"),
            lambda: write_model(root, "a", b"second"),
            lambda: rig.load("a"),
            lambda: rig.load("a", failed=True),
            lambda: rig.load("a"),
            lambda: rig.load("b"),
        ):
            with suppress(StagingError, OSError):
                if asyncio.iscoroutine(doing := step()):
                    await doing
        await stager.close()

    asyncio.run(work())
    return rig


def at_change(root: Path, number: int, act: Callable[[], None]) -> Callable[[], int]:
    """Run something before the n-th change below the cache. Return a function that returns the number of changes."""
    seen, tier = 0, str(root / "tier")

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in CHANGES and any(str(each).startswith(tier) for each in arguments[:2]):
            if event == "open" and not isinstance(arguments[1], str):  # By descriptor, or of a directory to read.
                return
            seen += 1
            if seen == number:
                act()

    sys.addaudithook(hook)
    return lambda: seen


def in_child(work: Callable[[], int]) -> int:
    """Run work in a new process, because audit hooks cannot be removed. Return its exit code."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        code = 255
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count(root: Path) -> int:
    def work() -> int:
        changes = at_change(root, 0, lambda: None)
        live(root)
        return changes()

    return in_child(work)


def assert_nothing_in_part(root: Path, known: dict[str, list[dict[str, bytes]]]) -> None:
    for link in (root / "tier" / "models").glob("*"):
        if link.exists():
            assert files_below(link.resolve()) in known[link.name], link
    for place in (root / "tier" / "files").glob("*/*"):
        if place.is_dir():
            assert files_below(place) in known[place.parent.name], place


def assert_a_successor_serves(root: Path, known: dict[str, list[dict[str, bytes]]]) -> None:
    rig = Rig(root)

    async def work() -> None:
        async with rig.running(rig.room_for("a")):
            for name in "bab":
                await rig.load(name)
                rig.check()
                assert files_below((rig.served / name).resolve()) == known[name][-1]
            assert rig.is_near("b")

    asyncio.run(work())


@pytest.fixture
def known(tmp_path: Path) -> dict[str, list[dict[str, bytes]]]:
    (tmp_path / "source").mkdir()
    return contents(tmp_path)


def test_a_survived_run_copies_again_and_discards(tmp_path: Path, known: dict[str, list[dict[str, bytes]]]) -> None:
    rig = live(tmp_path)
    counts = rig.stager.counts
    assert (counts.found, counts.copied) == (1, 5)
    assert (rig.served / "a").resolve() == (tmp_path / "source" / "a").resolve()
    assert_nothing_in_part(tmp_path, known)


@pytest.mark.parametrize("fault", ["killed", pytest.param("full", marks=pytest.mark.thorough), "broken"])
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_kill_at_any_change_leaves_no_partial_files_and_a_successor_serves(
    tmp_path: Path, known: dict[str, list[dict[str, bytes]]], fault: str, step: int
) -> None:
    changes = count(tmp_path)
    assert 30 < changes < 250
    for number in range(1, changes + 1, step):
        shutil.rmtree(tmp_path / "tier")

        def work(number: int = number) -> int:
            def act() -> None:
                if fault == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(errno.ENOSPC if fault == "full" else errno.EIO, "the volume fails")

            at_change(tmp_path, number, act)
            live(tmp_path)
            return 0

        assert in_child(work) == (-signal.SIGKILL if fault == "killed" else 0), number
        write_model(tmp_path, "a", b"second")
        assert_nothing_in_part(tmp_path, known)
        assert_a_successor_serves(tmp_path, known)
