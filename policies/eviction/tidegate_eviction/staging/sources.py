"""The files of a model where they lie: how large each is, whether it has changed, and what is in it."""

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
PYTHON_CACHE = "__pycache__"  # What a load leaves itself in a folder that can be written: no content.


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a model."""

    path: str  # Below the model's folder, with `/` between its steps.
    size: int  # Bytes.
    mark: str  # Changes with its content: when it was modified, or what object storage calls its state.
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies in a model's folder; the files in an order that is always the same."""

    files: tuple[SourceFile, ...] = ()
    folders: tuple[str, ...] = ()  # Paths of all folders, empty ones too, each after the one that it is in.
    linked: tuple[str, ...] = ()  # Paths of links to folders, which are not followed.

    def stamp(self, more: str = "") -> str:
        """Return a fingerprint of what is there, and of `more`."""
        seen = hashlib.sha256(more.encode())
        for file in self.files:
            seen.update(f"{file.path}\0{file.size}\0{file.mark}\0".encode(errors="surrogateescape"))
        return seen.hexdigest()[:16]


class ModelSource(Protocol):
    """The folder of one model."""

    @property
    def where(self) -> str:
        """Its path or URL."""

    def folders(self) -> list[str]:
        """Return the names of the folders right below."""

    def listing(self, without: Collection[str] = ()) -> Listing:
        """Return everything but what lies in these folders right below."""

    def read(self, path: str, most: int) -> bytes:
        """Return a small file's content; raises OSError for one that is larger, too."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's content."""


@dataclass(frozen=True)
class FolderSource:
    """A model in a mounted folder."""

    path: Path

    @property
    def where(self) -> str:
        """Its path."""
        return str(self.path)

    def folders(self) -> list[str]:
        """Return the names of the folders right below."""
        return [entry.name for entry in os.scandir(self.path) if entry.is_dir()]

    def listing(self, without: Collection[str] = ()) -> Listing:
        """Return everything but what lies in these folders right below; links to nothing are passed over."""
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
                except FileNotFoundError:  # a link to nothing, or it has just gone
                    continue
                path, executable = os.path.relpath(full, self.path), bool(found.st_mode & stat.S_IXUSR)
                files.append(SourceFile(path, found.st_size, str(found.st_mtime_ns), executable))
        return Listing(tuple(files), tuple(all_folders), tuple(linked))

    def read(self, path: str, most: int) -> bytes:
        """Return a small file's content; raises OSError, also for what is no file and could block."""
        with self._open(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
        return data

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield a file's content."""
        with self._open(path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while chunk := file.read(CHUNK_BYTES):
                # The volume goes on while this chunk is used: the kernel by itself reads less ahead than that takes.
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
    """What one load of a model reads of its folder."""

    model: str
    stamp: str  # Changes with the content.
    listing: Listing
    source: ModelSource
    parts: tuple[str, ...] = ()  # Models that are loaded with it.
    manifest: Mapping[str, ManifestFile] = field(default_factory=dict)
    """What a manifest says of files, by their path: of versions that the client published."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and stamp: what it is staged under."""
        return self.model, self.stamp
