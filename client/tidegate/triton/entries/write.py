"""Creates the entry of a model: its files in Triton's layout, and its config.pbtxt."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from tidegate_contracts.manifest import ENTRY_VERSION

from ...errors import UsageError, hints_once
from ...findings import Finding, errors
from ...names import RULE, is_name
from .checks import check_entry
from .configure import Options, complete, first_dimension_varies
from .detect import READERS, Framework, detect
from .entry import read_entry
from .frameworks.reading import Reading
from .text import CONFIG, config_text

_MAY_BATCH = "all tensors have a variable first dimension. If it is the batch, pass --max-batch-size N to use batches"


@dataclass(frozen=True)
class NewEntry:
    """A created entry."""

    folder: Path
    framework: Framework
    config: Any
    notes: tuple[str, ...]
    warnings: tuple[Finding, ...]


def new_entry(
    name: str, source: Path, parent: Path, options: Options, *, framework: Framework | None = None
) -> NewEntry:
    """Create the entry `name` in the directory `parent` from a model's file or directory. The entry appears atomically,
    and nothing is overwritten. Raises UsageError, also if Triton would refuse the entry."""
    if not is_name(name):
        raise UsageError(f"{name!r} is not a valid name of a model", do=RULE)
    folder = parent / name
    check_free(folder)
    framework = detect(source, framework)
    reading = READERS[framework](source)
    try:
        config = complete(reading, name, options)
    except ValueError as error:  # raised by protobuf
        what = "a number is too large, or too small, for Triton's configuration"
        raise UsageError(what, where=source, why=str(error)) from None
    parent.mkdir(parents=True, exist_ok=True)
    staged = staging(parent, name)
    try:
        _lay(staged, config, reading)
        findings = check_entry(read_entry(staged, name))
        if refused := errors(findings):
            what = "Triton would refuse this entry"
            raise UsageError(what, where=name, why="\n" + indent("\n".join(hints_once(map(str, refused))), "    "))
        staged.chmod(0o755)  # mkdtemp's 0700 would keep servers from reading it
        try:
            staged.rename(folder)
        except OSError:
            check_free(folder)  # another process may have created one meanwhile
            raise
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    notes = list(reading.notes)
    if not config.max_batch_size and first_dimension_varies(reading):
        notes.append(_MAY_BATCH)
    return NewEntry(folder, framework, config, tuple(notes), tuple(findings))


def staging(parent: Path, name: str) -> Path:
    """Return a new directory on the same file system. If possible, it is outside `parent`, which Triton may poll: it
    treats every directory there as a model."""
    above = parent.resolve().parent
    if os.access(above, os.W_OK) and above.stat().st_dev == parent.stat().st_dev:
        parent = above
    return Path(tempfile.mkdtemp(prefix=f".tidegate-new-{name}.", dir=parent))


def _lay(staged: Path, config: Any, reading: Reading) -> None:
    version = staged / ENTRY_VERSION
    version.mkdir()
    for below, source in reading.files:
        target = version / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        if os.access(source, os.X_OK):
            target.chmod(0o755)
    (staged / CONFIG).write_text(config_text(config), "utf-8")


def check_free(folder: Path) -> None:
    """Raise UsageError if the path of an entry exists."""
    if os.path.lexists(folder):
        do = "remove it, or choose another directory"
        raise UsageError("it exists already and is not overwritten", where=folder, do=do)
