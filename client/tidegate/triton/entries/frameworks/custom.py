"""Backends of one's own: a library `libtriton_<backend>.so`, which lies in the version's folder."""

import re
from pathlib import Path

from ....errors import UsageError
from .programs import files_of
from .reading import Reading, config_of

LIBRARY = re.compile(r"libtriton_([A-Za-z0-9_.-]+)\.so")


def library(source: Path) -> Path | None:
    """Return the library, be it the file or in the folder; None when there is none."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    return next((file for file in files if LIBRARY.fullmatch(file.name) and file.is_file()), None)


def read(source: Path) -> Reading:
    """Take a library, or a folder with it and what it needs."""
    file = library(source)
    if file is None:
        raise UsageError("there is no libtriton_<backend>.so", where=str(source), do="name the library so")
    found = LIBRARY.fullmatch(file.name)
    assert found
    return Reading(
        config_of(found[1]), files_of(source, file.name), missing="a backend of one's own has the tensors you say"
    )
