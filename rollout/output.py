"""The folder of rendered files: whose it is, what is in it, and how a new rendering takes its place.

A rendering is written next to the folder and replaces it as a whole. `.tidegate.json` in the folder marks it as
Tidegate's, and lists the files that were written.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from stacks.command import CommandError, ExitStatus, reason
from stacks.problems import escaped, listed

from .render import Rendered, interrupted_afterwards

MARKER = ".tidegate.json"  # Its presence in a folder says that the folder is ours.

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of a file or a folder that we write: none that leads elsewhere."""


class Index(BaseModel):
    """What a rendering holds: the files of each stack, as they were written."""

    model_config = ConfigDict(frozen=True)
    madeBy: str = "tidegate"
    format: Literal[2] = 2
    definition: Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
    stacks: dict[Name, tuple[Name, ...]]


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


def texts_of(out: Path, index: Index) -> dict[str, dict[str, str]]:
    """Return the files of each stack of a rendering, as they are now."""
    return {
        stack: {
            file: (out / stack / file).read_bytes().decode("utf-8", "replace")
            for file in files
            if (out / stack / file).is_file()
        }
        for stack, files in index.stacks.items()
    }


def refuse_foreign(out: Path, index: Index) -> None:
    """Raise CommandError where somebody else's files would be lost."""
    ours = {f"{stack}/{file}" for stack, files in index.stacks.items() for file in files}
    inside = {f"{name}/{file}" for name in index.stacks if (out / name).is_dir() for file in os.listdir(out / name)}
    foreign = {*os.listdir(out), *inside} - {MARKER, *index.stacks, *ours}
    foreign |= {name for name in ours & inside if not (out / name).is_file()}  # such as a folder, or a pipe
    if foreign:
        raise _refused(f"{_name(out)} holds what Tidegate did not write: {listed(sorted(foreign), most=5)}.")


def new_index(definition_file: str, rendered: Iterable[Rendered], kept: Mapping[str, tuple[str, ...]]) -> Index:
    """Return the index of a rendering, of which some stacks may be kept as they were."""
    stacks = {**kept, **{stack.stack: tuple(stack.files) for stack in rendered}}
    return Index(definition=definition_file, stacks=dict(sorted(stacks.items())))


# ---- writing ----


def real(out: Path) -> Path:
    """Return where a folder really is, so that a link to it stays one; a path that is none is left as it was given."""
    return out if out.name not in ("", "..") and not out.is_symlink() else Path(os.path.realpath(out))


def write(out: Path, index: Index, rendered: Iterable[Rendered], kept: Iterable[str], outcome: ExitStatus) -> None:
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
