"""What is kept of an environment's rollouts: for each a record, the texts that it rolls out, and a log of every plane.

build/rollout/<environment>/
    lock                    held by the rollout that is at work, and by every process that it started
    0007/rollout.json       the record: what is rolled out, and where every plane stands
    0007/definition/        the definition and images.lock, as they were when the rollout began
    0007/logs/<plane>.log   what the engine said; <plane>.failure is why its latest attempt failed, where that is known

A record is replaced as a whole, and is on the disk before what it announces happens. So a rollout that is killed at any
moment leaves one to go on from. A record that cannot be understood is an error, because a plane could be forgotten.
"""

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from stacks.command import CommandError, EngineName
from stacks.images_lock import FILE_NAME as LOCK_FILE
from stacks.problems import escaped
from stacks.stack import Definition
from stacks.validate import read_definition

from ..files import sync_folder, write_atomically
from ..processes import lives
from .plan import Step

FILE = "rollout.json"
State = Literal["waiting", "applying", "applied", "passed", "failed", "interrupted"]
Ending = Literal["succeeded", "failed", "stopped"]
_ORPHAN_SECONDS = 120.0  # How long to wait for what a killed rollout left running; its engines are interrupted at once.


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)  # within a format, versions may add fields and drop them


class PlaneStatus(_Record):
    """Where a data plane stands in a rollout."""

    state: State = "waiting"
    attempts: int = 0  # How often it was begun.
    began_at: str = ""  # When the latest attempt began, and when its state last changed.
    changed_at: str = ""
    seconds: float | None = None  # How long the latest attempt has taken.
    message: str = ""  # What failed, and why.
    not_loaded: list[str] | None = None  # Models that were not loaded before the first attempt; None: not known yet.


class RolloutRecord(_Record):
    """All that a later process must know to go on with a rollout, or to take it back."""

    format: Literal[2] = 2
    began_at: str
    kind: Literal["forward", "back"]
    environment: str
    definition: str  # The definition's file, as it was given; what is rolled out are the texts kept beside the record.
    engine: EngineName
    steps: list[Step]
    good: dict[str, int] = {}  # Each plane's last good rollout. Going back, it is what a plane is brought back to.
    takes_back: int | None = None  # The rollout that is taken back.
    planes: dict[str, PlaneStatus] = {}  # Every plane of the steps, in their order.
    outcome: Ending | None = None

    @model_validator(mode="after")
    def _holds_together(self) -> "RolloutRecord":
        planes = [plane for step in self.steps for plane in step.planes]
        if not planes or (self.planes and [*self.planes] != planes):
            raise ValueError("the planes are not those of the steps")
        if self.kind == "back" and {*self.good} != {*planes}:
            raise ValueError("what a plane goes back to is not known")
        self.planes = self.planes or {plane: PlaneStatus() for plane in planes}
        return self

    @property
    def touched(self) -> tuple[str, ...]:
        """The planes that were begun."""
        return tuple(name for name, status in self.planes.items() if status.attempts)


class Journal:
    """One rollout's folder, which exists and whose name is its number. Its record may be changed by several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = int(folder.name)
        self._lock = threading.Lock()

    @cached_property
    def record(self) -> RolloutRecord:
        """The record, read when it is first asked for; raise CommandError when it cannot be understood."""
        try:
            return RolloutRecord.model_validate_json((self.folder / FILE).read_bytes())
        except (FileNotFoundError, ValidationError):
            raise self.damaged() from None

    def damaged(self) -> CommandError:
        """Return the error for a record that cannot be read, or does not fit what it belongs to."""
        what = f"{escaped(str(self.folder / FILE))}: this record cannot be understood"
        return CommandError(
            f"{what}, so the state of its data planes is unknown.\nNothing was changed."
            f" Move {escaped(str(self.folder))} away, and start a new rollout: what is up already stays as it is."
        )

    @property
    def definition_file(self) -> Path:
        """The definition, as it was rolled out."""
        return self.folder / "definition" / Path(self.record.definition).name

    def definition(self) -> Definition:
        """Read the definition that was rolled out; raise CommandError if its copy is gone."""
        if not self.definition_file.is_file():
            raise CommandError(f"{escaped(str(self.definition_file))} is gone, so rollout {self.number} cannot go on.")
        return read_definition(self.definition_file)

    def log(self, plane: str) -> Path:
        """Return the file that holds what the engine said about a plane."""
        return self.folder / "logs" / f"{plane}.log"

    def note_not_loaded(self, plane: str, models: list[str]) -> None:
        """Write down which models a plane had not loaded before it was begun."""
        with self._lock:
            self.record.planes[plane].not_loaded = models
            _write(self.folder, self.record)

    def note_plane(self, plane: str, state: State, seconds: float | None = None, message: str = "") -> None:
        """Write down where a plane stands now."""
        with self._lock:
            status = self.record.planes[plane]
            status.state, status.message, status.changed_at = state, message, now()
            status.seconds = None if seconds is None else round(seconds, 3)
            if state == "applying":
                status.attempts, status.began_at = status.attempts + 1, status.changed_at
            _write(self.folder, self.record)

    def note_outcome(self, outcome: Ending | None) -> None:
        """Write down how the rollout ended, or with None that it goes on."""
        with self._lock:
            self.record.outcome = outcome
            _write(self.folder, self.record)


class History:
    """The rollouts of one environment, in a folder that need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Journal]:
        """Return every rollout, the oldest first."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        folders = [path for path in paths if path.name.isdecimal() and path.is_dir()]
        return sorted(map(Journal, folders), key=lambda journal: journal.number)

    def numbered(self, number: int) -> Journal:
        """Return a rollout by its number; raise CommandError when it is no longer there."""
        for journal in self.all():
            if journal.number == number:
                return journal
        raise CommandError(f"rollout {number} is no longer in {escaped(str(self.folder))}.")

    def good(self, plane: str) -> int | None:
        """Return the rollout whose texts are the last good ones of a plane.

        It is the latest that succeeded there and was not taken back, else the one that it was taken back to.
        """
        for journal in reversed(self.all()):
            record = journal.record
            if plane in record.planes and record.kind == "back":
                return record.good.get(plane)
            if plane in record.planes and record.outcome == "succeeded":
                return journal.number
        return None

    def begin(self, record: RolloutRecord, texts: Mapping[str, bytes]) -> Journal:
        """Make the folder of a new rollout; it appears as a whole, or not at all."""
        number = max((journal.number for journal in self.all()), default=0) + 1
        staging, final = self.folder / f".{number:04d}.new", self.folder / f"{number:04d}"
        shutil.rmtree(staging, ignore_errors=True)
        (staging / "definition").mkdir(parents=True)
        (staging / "logs").mkdir()
        for name, data in texts.items():
            write_atomically(staging / "definition" / name, data)
        _write(staging, record)
        staging.rename(final)
        sync_folder(self.folder)
        return Journal(final)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the environment's lock; yields its descriptor, which the processes that are started hold too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+", encoding="utf-8") as file:
            self._take(file.fileno())
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield file.fileno()

    def _take(self, descriptor: int) -> None:
        end = time.monotonic() + _ORPHAN_SECONDS
        while True:
            with suppress(BlockingIOError):
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            # A holder that was killed may have left its engines, which end soon.
            if (holder.isdecimal() and lives(int(holder))) or time.monotonic() > end:
                other = f"Another rollout of {escaped(self.folder.name)} is at work (process {escaped(holder) or '?'})"
                raise CommandError(f"{other}: two at once would bring up the same planes.\nWait until it has ended.")
            time.sleep(0.2)


def texts_of(path: Path) -> dict[str, bytes]:
    """Read the files that a definition consists of: its own, and images.lock where there is one."""
    files = {path.name: path.read_bytes()}
    lock = path.parent / LOCK_FILE
    return files | ({LOCK_FILE: lock.read_bytes()} if lock.exists() else {})


def now() -> str:
    """Return the time, as records carry it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(folder: Path, record: RolloutRecord) -> None:
    write_atomically(folder / FILE, f"{record.model_dump_json(indent=2)}\n")
