"""The folder of rendered files: whose it is, what is in it, and how a new rendering takes its place.

A rendering is written next to the folder and replaces it as a whole. `.tidegate.json` in the folder marks it as
Tidegate's, and has the digest of each file that was written.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from stacks.command import CommandError, Outcome, reason
from stacks.problems import escaped, listed

from .render import Rendered, interrupted_afterwards

MARKER = ".tidegate.json"  # Its presence in a folder says that the folder is ours.

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of a file or a folder that we write: none that leads elsewhere."""


class _Stack(BaseModel):
    objects: dict[Name, str]


class Index(BaseModel):
    """What a rendering holds: for each stack its files and the SHA-256 of each, as they were written."""

    model_config = ConfigDict(frozen=True)
    madeBy: str = "tidegate"
    format: Literal[1] = 1
    definition: Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
    stacks: dict[Name, _Stack]


def read_index(out: Path) -> Index | None:
    """Return what the last run wrote; None without a rendering. Raises CommandError for a foreign folder."""
    if not out.exists() and not out.is_symlink():
        return None
    if not out.is_dir():
        raise CommandError(f"{_name(out)} is not a folder; name another with --out <folder>.")
    names = sorted(os.listdir(out))
    if not names:
        return None
    if MARKER not in names:
        what = f"is not empty and was not made by Tidegate (it has no {MARKER})"
        raise _refused(f"{_name(out)} {what}. It holds: {listed(names, most=5)}.")
    try:
        return Index.model_validate_json((out / MARKER).read_bytes() if (out / MARKER).is_file() else b"")
    except ValidationError:
        what = "cannot be understood: another version of Tidegate wrote it, or the folder is not ours"
        raise _refused(f"{_name(out / MARKER)} {what}.") from None


def _refused(what: str) -> CommandError:
    do = "Move it away, or name another folder with --out <folder>"
    return CommandError(f"{what}\nA rendering replaces the whole folder. Nothing was changed. {do}.")


def same_definition(index: Index, definition_file: str) -> bool:
    """Say whether a rendering was made from this definition file, however its path is written."""
    return os.path.realpath(index.definition) == os.path.realpath(definition_file)


@dataclass(frozen=True)
class FolderState:
    """What a folder of renderings holds, compared with its index."""

    texts: dict[str, dict[str, str]]  # For each stack its files, as they are now.
    edited: tuple[str, ...]  # Files that are no longer as we wrote them.
    missing: tuple[str, ...]
    foreign: tuple[str, ...]  # Files and folders that we did not write.


def look(out: Path, index: Index) -> FolderState:
    """Compare a rendering with its index."""
    texts: dict[str, dict[str, str]] = {stack: {} for stack in index.stacks}
    edited, missing, foreign = [], [], []
    for stack, files in index.stacks.items():
        for file, digest in files.objects.items():
            name, path = f"{stack}/{file}", out / stack / file
            if not path.is_file():
                missing.append(name)
                if path.exists():  # such as a folder, or a pipe that would never end
                    foreign.append(name)
                continue
            data = path.read_bytes()
            texts[stack][file] = data.decode("utf-8", "replace")
            if hashlib.sha256(data).hexdigest() != digest:
                edited.append(name)
    ours = (f"{stack}/{file}" for stack, files in index.stacks.items() for file in files.objects)
    inside = (f"{name}/{file}" for name in index.stacks if (out / name).is_dir() for file in os.listdir(out / name))
    foreign += {*os.listdir(out), *inside} - {MARKER, *index.stacks, *ours}
    return FolderState(texts, tuple(edited), tuple(missing), tuple(sorted(foreign)))


def refuse_foreign(out: Path, found: FolderState) -> None:
    """Raise CommandError where somebody else's files would be lost."""
    if found.foreign:
        raise _refused(f"{_name(out)} holds what Tidegate did not write: {listed(found.foreign, most=5)}.")


def new_index(definition_file: str, rendered: Iterable[Rendered], kept: Mapping[str, _Stack]) -> Index:
    """Return the index of a rendering, of which some stacks may be kept as they were."""
    stacks = dict(kept)
    for stack in rendered:
        digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in stack.files.items()}
        stacks[stack.stack] = _Stack(objects=digests)
    return Index(definition=definition_file, stacks=dict(sorted(stacks.items())))


# ---- writing ----


def real(out: Path) -> Path:
    """Return where a folder really is, so that a link to it stays one; a path that is none is left as it was given."""
    return out if out.name not in ("", "..") and not out.is_symlink() else Path(os.path.realpath(out))


def write(out: Path, index: Index, rendered: Iterable[Rendered], kept: Iterable[str], outcome: Outcome) -> None:
    """Replace the folder by a new rendering, as a whole; `kept` stacks are taken over from the one before.

    Raises CommandError when it cannot be written; then everything is as it was.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent, ignore_cleanup_errors=True) as temporary:
            new, old = Path(temporary) / "new", Path(temporary) / "old"
            new.mkdir()
            (new / MARKER).write_text(f"{index.model_dump_json(indent=2)}\n", "utf-8")
            if out.exists():
                shutil.copymode(out, new)
            for name in kept:
                if (out / name).is_dir():
                    shutil.copytree(out / name, new / name)
            for stack in rendered:
                (new / stack.stack).mkdir()
                for file, text in stack.files.items():
                    (new / stack.stack / file).write_bytes(text.encode())
            with interrupted_afterwards():
                if out.exists():
                    os.replace(out, old)
                try:
                    os.replace(new, out)
                except OSError:
                    if old.exists():
                        os.replace(old, out)
                    raise
                outcome.text = f"{out} has the new rendering"
    except OSError as error:
        why = str(error) if isinstance(error, shutil.Error) else reason(error)
        hint = f"\n{_name(out)} is a mount point: name a folder below it." if out.is_mount() else ""
        raise CommandError(f"{_name(out)} could not be written, and is as it was: {why}{hint}") from None


def _name(path: Path) -> str:
    return escaped(str(path))
