"""The journal of one rollout: lines of JSON that only ever grow, each on the disk before what it announces happens.

A process that is killed leaves at most one torn line, the last; it is left out when the journal is read, and cut off
before anything is added. Whatever else cannot be understood is an error, because a plane could be forgotten.
"""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from stacks.command import CommandError
from stacks.problems import escaped

from .plan import Step

SCHEMA = 1
FILE = "journal.jsonl"
Kind = Literal["forward", "back"]
State = Literal["waiting", "applying", "applied", "passed", "failed", "interrupted"]
Ending = Literal["succeeded", "failed", "stopped"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    at: str


class Begin(_Line):
    """The first line: everything that a later process must know to go on, or to take the rollout back."""

    event: Literal["begin"] = "begin"
    schema_version: int = SCHEMA
    kind: Kind
    environment: str
    definition: str
    """The definition's file, as it was given; what is rolled out are the texts kept beside the journal."""
    engine: str
    steps: Sequence[Step]
    left_out: Sequence[str] = ()
    texts: Mapping[str, str]
    """SHA-256 of each kept text."""
    objects: Mapping[str, str]
    """SHA-256 of what each plane's stack rendered to."""
    good: Mapping[str, int]
    """Each plane's last good rollout. Going back, it is what a plane is brought back to."""
    takes_back: int | None = None
    """The rollout that is taken back."""

    @property
    def planes(self) -> tuple[str, ...]:
        """Every plane, in order."""
        return tuple(plane for step in self.steps for plane in step.planes)


class PlaneLine(_Line):
    """Something that happened to a plane."""

    event: Literal["applying", "applied", "passed", "failed", "interrupted"]
    plane: str
    seconds: float | None = None
    message: str | None = None


class RunLine(_Line):
    """Something that happened to the rollout."""

    event: Literal["resumed", "ended"]
    outcome: Ending | None = None


_LINE: TypeAdapter[Begin | PlaneLine | RunLine] = TypeAdapter(Begin | PlaneLine | RunLine)


@dataclass
class Standing:
    """Where a plane stands."""

    state: State = "waiting"
    seconds: float | None = None
    message: str = ""
    """What failed, and why."""
    began: int = 0
    """How often it was begun."""


@dataclass
class Story:
    """What a journal says."""

    begin: Begin
    planes: dict[str, Standing]
    outcome: Ending | None = None
    length: int = field(default=0, repr=False)
    """Bytes of the lines that are whole."""

    @property
    def touched(self) -> tuple[str, ...]:
        """The planes that were begun."""
        return tuple(name for name, standing in self.planes.items() if standing.began)

    def take(self, line: PlaneLine | RunLine) -> None:
        """Go on with a line."""
        if isinstance(line, RunLine):
            self.outcome = line.outcome
            return
        standing = self.planes[line.plane]
        standing.state = line.event
        standing.message = line.message or ""
        standing.seconds = line.seconds
        standing.began += line.event == "applying"


class Journal:
    """A journal that is open for more lines; several threads may write."""

    def __init__(self, path: Path) -> None:
        """Open a journal, and cut a torn line off."""
        self.story = read(path)
        self._lock = threading.Lock()
        self._file = path.open("r+b")
        self._file.truncate(self.story.length)
        self._file.seek(0, os.SEEK_END)

    def plane(
        self,
        event: Literal["applying", "applied", "passed", "failed", "interrupted"],
        plane: str,
        seconds: float | None = None,
        message: str | None = None,
    ) -> None:
        """Note what happened to a plane."""
        rounded = None if seconds is None else round(seconds, 3)
        self._add(PlaneLine(at=now(), event=event, plane=plane, seconds=rounded, message=message))

    def run(self, event: Literal["resumed", "ended"], outcome: Ending | None = None) -> None:
        """Note what happened to the rollout."""
        self._add(RunLine(at=now(), event=event, outcome=outcome))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, line: PlaneLine | RunLine) -> None:
        with self._lock:
            data = encoded(line)
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
            self.story.take(line)
            self.story.length += len(data)


def encoded(line: BaseModel) -> bytes:
    """Return a line as it stands in the file."""
    return line.model_dump_json(exclude_none=True).encode() + b"\n"


def read(path: Path) -> Story:
    """Return what a journal says; raise CommandError when it cannot be understood."""
    data = path.read_bytes()
    *lines, torn = data.split(b"\n")
    if not lines and not torn:
        raise CommandError(f"{escaped(str(path))} is empty: it is no journal of a rollout. Move its folder away.")
    if not lines:
        raise damaged(path, 1, "is torn")
    begin = _parsed(path, 1, lines[0])
    if not isinstance(begin, Begin) or not _holds_together(begin):
        raise damaged(path, 1)
    story = Story(begin, {plane: Standing() for plane in begin.planes}, length=sum(len(line) + 1 for line in lines))
    for number, text in enumerate(lines[1:], 2):
        line = _parsed(path, number, text)
        if isinstance(line, Begin) or (isinstance(line, PlaneLine) and line.plane not in story.planes):
            raise damaged(path, number)
        story.take(line)
    return story


def now() -> str:
    """Return the time, as lines carry it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _parsed(path: Path, number: int, text: bytes) -> Begin | PlaneLine | RunLine:
    try:
        tree: Any = json.loads(text)
        version = tree.get("schema_version", SCHEMA) if isinstance(tree, dict) else SCHEMA
        if version != SCHEMA:
            raise CommandError(
                f"{escaped(str(path))} is written in version {escaped(str(version))} of the journal, and this Tidegate "
                f"knows version {SCHEMA}.\nGo on with the Tidegate that began this rollout."
            )
        return _LINE.validate_json(text)
    except (ValueError, ValidationError, RecursionError):
        raise damaged(path, number) from None


def _holds_together(begin: Begin) -> bool:
    """Say whether a first line says enough of every plane that it names; somebody may have edited it."""
    planes = begin.planes
    return (
        bool(planes)
        and all(step.planes for step in begin.steps)
        and len(set(planes)) == len(planes)
        and not {*planes} & {*begin.left_out}
        and {*begin.objects, *begin.good} <= {*planes}
        and Path(begin.definition).name != ""
        and "\0" not in begin.definition
        and (begin.kind == "forward" or (begin.takes_back is not None and {*begin.good} == {*planes}))
    )


def damaged(path: Path, number: int, how: str = "cannot be understood") -> CommandError:
    """Return what to raise about a line that nobody may go by."""
    folder = escaped(str(path.parent))
    return CommandError(
        f"{escaped(str(path))}:{number}: this line of the journal {how}, so nobody knows where the "
        f"planes stand.\nNothing was changed. Move {folder} away and roll out anew: what is up already stays as it is."
    )
