"""The folder of an environment's rollouts: each with its journal, the texts it rolls out, and a log of every plane.

build/rollout/<environment>/
    lock                    held by the rollout that is at work, and by every process that it started
    0007/journal.jsonl
    0007/definition/        the definition and images.lock, as they were when the rollout began
    0007/logs/<plane>.log   what the engine said
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stacks.command import CommandError, reason
from stacks.images_lock import FILE_NAME as LOCK_FILE
from stacks.problems import escaped
from stacks.stack import Definition
from stacks.validate import read_definition

from .journal import FILE, Begin, Story, encoded, read

_ORPHAN_SECONDS = 120.0
"""How long to wait for what a killed rollout left running; its engines are interrupted at once."""


@dataclass(frozen=True)
class Texts:
    """What is rolled out: the definition's text, and its images.lock where there is one."""

    files: Mapping[str, bytes]
    definition: str
    """Name of the definition among the files."""

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}


def texts_of(path: Path) -> Texts:
    """Read the files that a definition consists of."""
    lock = path.parent / LOCK_FILE
    files = {path.name: path.read_bytes()}
    if lock.exists():
        files[LOCK_FILE] = lock.read_bytes()
    return Texts(files, path.name)


@dataclass(frozen=True)
class Past:
    """A rollout that was begun."""

    number: int
    folder: Path

    @cached_property
    def story(self) -> Story:
        """What its journal said when it was first asked for."""
        return read(self.folder / FILE)

    @property
    def definition_file(self) -> Path:
        """The definition, as it was rolled out."""
        return self.folder / "definition" / Path(self.story.begin.definition).name

    def definition(self) -> Definition:
        """Read the definition that was rolled out; raise CommandError when somebody has edited it since."""
        try:
            now = texts_of(self.definition_file).digests
        except OSError as error:
            raise CommandError(f"rollout {self.number} cannot go on: {reason(error)}.") from None
        if now != dict(self.story.begin.texts):
            raise CommandError(
                f"{escaped(str(self.definition_file.parent))} holds what rollout {self.number} rolls out, and it was "
                "edited since.\nPut it back, or roll out anew: a new rollout takes the definition as it is now."
            )
        return read_definition(self.definition_file)

    def log(self, plane: str) -> Path:
        """Return the file that holds what the engine said about a plane."""
        return self.folder / "logs" / f"{plane}.log"


class History:
    """The rollouts of one environment."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which need not exist yet."""
        self.folder = folder

    def all(self) -> list[Past]:
        """Return every rollout, the oldest first."""
        if not self.folder.is_dir():
            return []
        names = sorted(path.name for path in self.folder.iterdir() if path.name.isdecimal() and path.is_dir())
        return sorted((Past(int(name), self.folder / name) for name in names), key=lambda past: past.number)

    def last(self) -> Past | None:
        """Return the latest rollout."""
        return next(iter(reversed(self.all())), None)

    def numbered(self, number: int) -> Past:
        """Return a rollout by its number."""
        found = next((past for past in self.all() if past.number == number), None)
        if found is None:
            raise CommandError(f"rollout {number} is no longer in {escaped(str(self.folder))}.")
        return found

    def good(self, plane: str) -> int | None:
        """Return the rollout whose texts are the last good ones of a plane.

        Those of the latest rollout that succeeded there and was not taken back; those that it was taken back to else.
        """
        for past in reversed(self.all()):
            story = past.story
            if plane not in story.planes:
                continue
            if story.begin.kind == "back":
                return story.begin.good.get(plane)
            if story.outcome == "succeeded":
                return past.number
        return None

    def begin(self, begin: Begin, texts: Texts) -> Past:
        """Make the folder of a new rollout; it appears as a whole, or not at all."""
        last = self.last()
        number = last.number + 1 if last else 1
        staging = self.folder / f".{number:04d}.new"
        shutil.rmtree(staging, ignore_errors=True)
        (staging / "definition").mkdir(parents=True)
        (staging / "logs").mkdir()
        for name, data in texts.files.items():
            _write(staging / "definition" / name, data)
        _write(staging / FILE, encoded(begin))
        for folder in (staging / "definition", staging):
            _sync(folder)
        final = self.folder / f"{number:04d}"
        staging.rename(final)
        _sync(self.folder)
        return Past(number, final)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the environment's lock; yields its descriptor, which the processes that are started hold too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield descriptor
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        end = time.monotonic() + _ORPHAN_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            if _alive(holder) or time.monotonic() > end:
                raise CommandError(
                    f"Another rollout of {escaped(self.folder.name)} is at work (process {escaped(holder) or 'unknown'}"
                    "): two at once would bring up the same planes.\nWait until it has ended."
                )
            time.sleep(0.2)


def _alive(process: str) -> bool:
    """Say whether a process is there; one that was killed may have left its engines, which end soon."""
    if not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
