"""The stored rollouts of an environment: for each a record, the texts that it applies, and a log of every plane.

| in build/rollout/<environment> | content |
|---|---|
| `lock` | held by the running rollout, and by every process that it started |
| `0007/rollout.json` | the record: the steps, and the state of every plane |
| `0007/definition/` | the definition and images.lock, as they were when the rollout started |
| `0007/logs/<plane>.log` | the engine's output |
| `0007/logs/<plane>.failure` | the error of its latest attempt, if it is known |

A record is replaced as a whole, and is on disk before the step that it announces starts. So a rollout that is killed at
any time can be resumed. An unreadable record is an error, because a plane could be forgotten.
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
_ORPHAN_SECONDS = 120.0  # How long to wait for the processes of a killed rollout. Its engines were interrupted already.


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)  # within a format, versions may add and drop fields


class PlaneStatus(_Record):
    """The state of a data plane in a rollout."""

    state: State = "waiting"
    attempts: int = 0
    began_at: str = ""  # Start of the latest attempt.
    changed_at: str = ""  # Latest change of `state`.
    seconds: float | None = None  # Duration of the latest attempt.
    message: str = ""  # The failed step, and the error.
    not_loaded: list[str] | None = None  # Models that were not loaded before the first attempt. None: not known yet.


class RolloutRecord(_Record):
    """Everything that a later process needs to resume a rollout or to roll it back."""

    format: Literal[2] = 2
    began_at: str
    kind: Literal["forward", "back"]
    environment: str
    definition: str  # The path as on the command line. The applied texts are the copies next to the record.
    engine: EngineName
    steps: list[Step]
    good: dict[str, int] = {}  # Each plane's last good rollout. A rollback returns to it.
    takes_back: int | None = None  # The rollout that a rollback reverts.
    planes: dict[str, PlaneStatus] = {}  # The planes of all steps, in their order.
    outcome: Ending | None = None

    @model_validator(mode="after")
    def _holds_together(self) -> "RolloutRecord":
        planes = [plane for step in self.steps for plane in step.planes]
        if not planes or (self.planes and [*self.planes] != planes):
            raise ValueError("the planes are not those of the steps")
        if self.kind == "back" and {*self.good} != {*planes}:
            raise ValueError("a plane has no rollout to return to")
        self.planes = self.planes or {plane: PlaneStatus() for plane in planes}
        return self

    @property
    def touched(self) -> tuple[str, ...]:
        return tuple(name for name, status in self.planes.items() if status.attempts)


class Journal:
    """One rollout's directory, which exists. Its name is its number. Several threads may change the record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = int(folder.name)
        self._lock = threading.Lock()

    @cached_property
    def record(self) -> RolloutRecord:
        """The record, read on first use. Raises CommandError if it is not valid."""
        try:
            return RolloutRecord.model_validate_json((self.folder / FILE).read_bytes())
        except (FileNotFoundError, ValidationError):
            raise self.damaged() from None

    def damaged(self) -> CommandError:
        """Return the error for a record that cannot be read, or does not match its files."""
        what = f"{escaped(str(self.folder / FILE))}: this record is not valid"
        return CommandError(
            f"{what}, so the state of its data planes is unknown.\nNothing was changed."
            f" Move {escaped(str(self.folder))} away, and start a new rollout. Applied stacks stay as they are."
        )

    @property
    def definition_file(self) -> Path:
        return self.folder / "definition" / Path(self.record.definition).name

    def definition(self) -> Definition:
        """Read the copy of the definition. Raise CommandError if it is gone."""
        if not self.definition_file.is_file():
            lost = f"{escaped(str(self.definition_file))} is gone"
            raise CommandError(f"{lost}, so rollout {self.number} cannot continue.")
        return read_definition(self.definition_file).known_as(self.record.definition)

    def log(self, plane: str) -> Path:
        return self.folder / "logs" / f"{plane}.log"

    def note_not_loaded(self, plane: str, models: list[str]) -> None:
        """Store the models that were not loaded in a plane before it was started."""
        with self._lock:
            self.record.planes[plane].not_loaded = models
            _write(self.folder, self.record)

    def note_plane(self, plane: str, state: State, seconds: float | None = None, message: str = "") -> None:
        with self._lock:
            status = self.record.planes[plane]
            status.state, status.message, status.changed_at = state, message, now()
            status.seconds = None if seconds is None else round(seconds, 3)
            if state == "applying":
                status.attempts, status.began_at = status.attempts + 1, status.changed_at
            _write(self.folder, self.record)

    def note_outcome(self, outcome: Ending | None) -> None:
        """Store how the rollout ended, or None while it runs."""
        with self._lock:
            self.record.outcome = outcome
            _write(self.folder, self.record)


class History:
    """The rollouts of one environment, in a directory that may not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Journal]:
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        folders = [path for path in paths if path.name.isdecimal() and path.is_dir()]
        return sorted(map(Journal, folders), key=lambda journal: journal.number)

    def numbered(self, number: int) -> Journal:
        """Return a rollout by its number. Raise CommandError if it no longer exists."""
        for journal in self.all():
            if journal.number == number:
                return journal
        raise CommandError(f"rollout {number} is no longer in {escaped(str(self.folder))}.")

    def good(self, plane: str) -> int | None:
        """Return the last good rollout of a plane. It is the latest that succeeded there and was not rolled back, else
        the one that a rollback returned to."""
        for journal in reversed(self.all()):
            record = journal.record
            if plane in record.planes and record.kind == "back":
                return record.good.get(plane)
            if plane in record.planes and record.outcome == "succeeded":
                return journal.number
        return None

    def begin(self, record: RolloutRecord, texts: Mapping[str, bytes]) -> Journal:
        """Create the directory of a new rollout. It appears completely or not at all."""
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
        """Hold the environment's lock. Yields its descriptor, which child processes hold too."""
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
            # A killed holder may have left engines behind, which end soon.
            if (holder.isdecimal() and lives(int(holder))) or time.monotonic() > end:
                other = f"Another rollout of {escaped(self.folder.name)} is running (process {escaped(holder) or '?'})"
                raise CommandError(f"{other}: two at a time would change the same planes.\nWait until it has ended.")
            time.sleep(0.2)


def texts_of(path: Path) -> dict[str, bytes]:
    """Read the files of a definition: the file itself, and images.lock if there is one."""
    files = {path.name: path.read_bytes()}
    lock = path.parent / LOCK_FILE
    return files | ({LOCK_FILE: lock.read_bytes()} if lock.exists() else {})


def now() -> str:
    """Return the time in the format of records."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(folder: Path, record: RolloutRecord) -> None:
    write_atomically(folder / FILE, f"{record.model_dump_json(indent=2)}\n")
