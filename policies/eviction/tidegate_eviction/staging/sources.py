"""The source files of a model: sizes, changes and contents."""

import errno
import hashlib
import io
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tidegate_contracts.manifest import ManifestFile

CHUNK_BYTES = 1 << 20
PYTHON_CACHE = "__pycache__"  # Written by a load in a writable directory, so it is not content.


class RepositoryError(Exception):
    """A model's files are invalid."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a model."""

    path: str  # Below the model's directory, separated by `/`.
    size: int  # Bytes.
    mark: str  # Changes with the content: the time of modification, or the state in an object store.
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a model's directory. The files have a fixed order."""

    files: tuple[SourceFile, ...] = ()
    folders: tuple[str, ...] = ()  # All directories, including empty ones, parents first.
    linked: tuple[str, ...] = ()  # Links to directories, which are not followed.

    def stamp(self, more: str = "") -> str:
        """Return a fingerprint of the content and of `more`."""
        seen = hashlib.sha256(more.encode())
        for file in self.files:
            seen.update(f"{file.path}\0{file.size}\0{file.mark}\0".encode(errors="surrogateescape"))
        return seen.hexdigest()[:16]


class ModelSource(Protocol):
    """The directory of one model."""

    @property
    def where(self) -> str:
        """Its path or URL."""

    def folders(self) -> list[str]:
        """Return the names of the top-level directories."""

    def listing(self, without: Collection[str] = ()) -> Listing:
        """Return everything except the content of these top-level directories."""

    def read(self, path: str, most: int) -> bytes:
        """Return a small file's content. Raises OSError, also for a larger file."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's content."""


@dataclass(frozen=True)
class FolderSource:
    """A model in a mounted directory."""

    path: Path

    @property
    def where(self) -> str:
        return str(self.path)

    def folders(self) -> list[str]:
        return [entry.name for entry in os.scandir(self.path) if entry.is_dir()]

    def listing(self, without: Collection[str] = ()) -> Listing:
        """Return everything except the content of these top-level directories. Broken links are skipped."""
        files, all_folders, linked = list[SourceFile](), list[str](), list[str]()
        for where, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if name != PYTHON_CACHE)
            if where == self.where:
                folders[:] = [name for name in folders if name not in without]
            for name in folders:
                full = os.path.join(where, name)
                (linked if os.path.islink(full) else all_folders).append(os.path.relpath(full, self.path))
            for name in sorted(names):
                full = os.path.join(where, name)
                try:
                    found = os.stat(full)
                except FileNotFoundError:  # A broken link, or it was just removed.
                    continue
                path, executable = os.path.relpath(full, self.path), bool(found.st_mode & stat.S_IXUSR)
                files.append(SourceFile(path, found.st_size, str(found.st_mtime_ns), executable))
        return Listing(tuple(files), tuple(all_folders), tuple(linked))

    def read(self, path: str, most: int) -> bytes:
        """Return a small file's content. Raises OSError, also for other objects that could block."""
        with self._open(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
        return data

    def chunks(self, path: str) -> Iterator[bytes]:
        with self._open(path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while chunk := file.read(CHUNK_BYTES):
                # Read ahead while this chunk is used: the kernel by itself reads less ahead.
                os.posix_fadvise(file.fileno(), file.tell(), CHUNK_BYTES, os.POSIX_FADV_WILLNEED)
                yield chunk

    def _open(self, path: str) -> io.BufferedReader:
        file = open(self.path / path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file


@dataclass(frozen=True)
class Contents:
    """The files that one load of a model reads."""

    model: str
    stamp: str  # Changes with the content.
    listing: Listing
    source: ModelSource
    parts: tuple[str, ...] = ()  # Models that load with it.
    manifest: Mapping[str, ManifestFile] = field(default_factory=dict)
    """The manifest entries of files, by path, for versions that the client published."""

    @property
    def key(self) -> tuple[str, str]:
        """The model and the stamp, which name its copy."""
        return self.model, self.stamp
