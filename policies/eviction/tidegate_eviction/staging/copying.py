"""Copies a model's files to the cache: each file is verified, and all are copied or none."""

import errno
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from .sources import Contents, SourceFile

THREADS = 4  # Files copied at the same time, because each has its own round trips.


class StagingError(Exception):
    """A model's files cannot be staged."""


class ChangedError(StagingError):
    """A model's files changed during the copy."""


def copy(contents: Contents, target: Path, stop: Event) -> None:
    """Copy everything to an empty directory. Raises StagingError and OSError, and then leaves a partial copy."""
    for folder in contents.listing.folders:
        (target / folder).mkdir()
    failed = Event()
    with ThreadPoolExecutor(THREADS, "copying") as threads:
        try:
            files = contents.listing.files
            for done in [threads.submit(_copy_file, contents, target, file, (stop, failed)) for file in files]:
                done.result()
        except BaseException:
            failed.set()
            raise


def _copy_file(contents: Contents, target: Path, file: SourceFile, stop: tuple[Event, Event]) -> None:
    known = contents.manifest.get(file.path)
    digest, size = hashlib.sha256(), 0
    with open(target / file.path, "xb") as written:
        for chunk in contents.source.chunks(file.path):
            if any(each.is_set() for each in stop):
                raise OSError(errno.ECANCELED, "the copy was stopped")
            if known is not None:
                digest.update(chunk)
            written.write(chunk)
            size += len(chunk)
        runs = file.is_executable or (known is not None and known.executable)  # A bucket has no file modes.
        os.fchmod(written.fileno(), 0o755 if runs else 0o644)
    if known is not None and digest.hexdigest() != known.sha256:
        raise StagingError(f"{file.path} of model {contents.model} differs from the registered file")
    if size != file.size:
        raise ChangedError(f"{file.path} of model {contents.model} changed during the copy")
