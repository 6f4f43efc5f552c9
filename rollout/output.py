"""The directory of rendered files. Tidegate writes and removes only files that begin with its heading."""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from stacks.command import CommandError, ExitStatus, reason
from stacks.problems import escaped

from .render import HEADING, Rendered


def write(out: Path, rendering: Sequence[Rendered], stacks: Collection[str] | None, outcome: ExitStatus) -> bool:
    """Write a rendering, and remove earlier files from the directories of these stacks (None: all). Return whether
    anything changed. Raises CommandError if a foreign file has the same path, or if a file cannot be written."""
    wanted = {out / item.stack / name: text.encode() for item in rendering for name, text in item.files.items()}
    try:
        there = {
            path: path.read_bytes()
            for path in sorted(out.glob("*/*.yaml"))
            if path.is_file() and (stacks is None or path.parent.name in stacks)
        }
        ours = {path for path, text in there.items() if text.startswith(HEADING.encode())}
        if foreign := [path for path in wanted if path not in ours and os.path.lexists(path)]:
            what = f"Tidegate did not write {escaped(str(foreign[0]))}, but would replace it"
            raise CommandError(f"{what}.\nMove it away, or set another directory with --out <directory>.")
        changed = [path for path, text in wanted.items() if there.get(path) != text]
        gone = ours - wanted.keys()
        if changed or gone:
            outcome.text = f"{out} may contain a part of the new rendering. Run the same command again"
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted[path])
        for path in gone:
            path.unlink()
            with suppress(OSError):  # it contains other files
                path.parent.rmdir()
    except OSError as error:
        raise CommandError(f"{escaped(str(out))} could not be written: {reason(error)}") from None
    return bool(changed or gone)
