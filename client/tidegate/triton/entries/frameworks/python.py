"""Python programs for the Python backend. They are read as text and never run."""

import stat
from pathlib import Path

from ....errors import UsageError
from .reading import Reading, bounded, config_of

PROGRAM = "model.py"
CLASS = b"TritonPythonModel"
COMPLETES = b"auto_complete_config"
LIMIT = 1 << 20  # Bytes of a program. Parsing takes some hundred times as much memory.
_LEFT = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".DS_Store"})


def read(source: Path) -> Reading:
    """Read a model.py with a TritonPythonModel, or a directory that contains it."""
    config, files = config_of("python"), files_of(source)
    if COMPLETES in program(source):
        note = "its program adds the tensors that config.pbtxt does not declare (auto_complete_config)"
        return Reading(config, files, notes=(note,))
    return Reading(config, files, missing="the tensors of a Python program cannot be read from it")


def program(source: Path) -> bytes:
    """Return the text of a program, or of the model.py in a directory."""
    return bounded(source / PROGRAM if source.is_dir() else source, LIMIT, "a program")


def files_of(source: Path) -> tuple[tuple[str, Path], ...]:
    """Return the files for the version directory: the program, or all of a directory. Raises UsageError."""
    if not source.is_dir():
        return ((PROGRAM, source),)
    found = []
    for path in sorted(source.rglob("*")):
        below = path.relative_to(source)
        if _LEFT & set(below.parts) or (path.is_dir() and not path.is_symlink()):
            continue
        if not path.exists() or not stat.S_ISREG(path.stat().st_mode):  # links to files are followed
            raise UsageError("not a file that can be copied", where=path, do="remove it from the directory")
        found.append((below.as_posix(), path))
    return tuple(found)
