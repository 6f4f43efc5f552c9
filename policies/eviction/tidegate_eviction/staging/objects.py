"""Reads models from an object store for the cache, with each cloud's usual credentials (keys, IRSA, the instance's)."""

import errno
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from time import monotonic
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError
from tidegate_contracts.object_url import open_store, parsed

from .sources import CHUNK_BYTES, Listing, SourceFile

FRESH_SECONDS: Final = 1.0  # For this time, one listing of the whole repository serves all models.
_RETRY: Final[Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}


class ObjectStore:
    """A repository in an object store."""

    def __init__(self, url: str) -> None:
        """Open the store without a request. Raises ValueError for an invalid URL."""
        self.url = url
        place = parsed(url)
        self._store = open_store(place, place.folders, retry_config=_RETRY)
        self._listed: dict[str, list[SourceFile]] = {}
        self._listed_at = float("-inf")
        self._read: dict[tuple[str, str], bytes] = {}

    def look(self) -> None:
        """List the whole repository. Raises OSError."""
        self._listed, self._listed_at = self._list(""), monotonic()
        there = {(f"{model}/{file.path}", file.mark) for model, files in self._listed.items() for file in files}
        self._read = {key: data for key, data in self._read.items() if key in there}

    def model(self, name: str) -> "ObjectSource | None":
        """Return a model as it is now, or None if it does not exist. Raises OSError."""
        fresh = monotonic() - self._listed_at < FRESH_SECONDS
        files = (self._listed if fresh else self._list(f"{name}/")).get(name)
        return None if files is None else ObjectSource(self, name, tuple(files))

    def read(self, path: str, mark: str, size: int) -> bytes:
        """Return a small object, read once for each state."""
        if (path, mark) not in self._read:
            self._read[path, mark] = b"".join(self.chunks(path, size))
        return self._read[path, mark]

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        if size:
            with self._explained(path):
                for chunk in obstore.get(self._store, path).stream(min_chunk_size=CHUNK_BYTES):
                    yield bytes(chunk)

    def _list(self, prefix: str) -> dict[str, list[SourceFile]]:
        found: defaultdict[str, list[SourceFile]] = defaultdict(list)
        with self._explained(prefix):
            for page in obstore.list(self._store, prefix or None):
                for each in page:
                    model, _, path = each["path"].partition("/")
                    mark = each["e_tag"] or each["last_modified"].isoformat()
                    found[model].append(SourceFile(path, each["size"], mark))
        return {model: sorted(files, key=lambda file: file.path) for model, files in found.items()}

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            raise OSError(errno.EIO, " ".join(str(error).split())[:300], f"{self.url}/{path}") from None


@dataclass(frozen=True)
class ObjectSource:
    """One model in the store, as it was listed."""

    store: ObjectStore
    name: str
    files: tuple[SourceFile, ...]

    @property
    def where(self) -> str:
        return f"{self.store.url}/{self.name}"

    def folders(self) -> list[str]:
        """Return the names of the top-level directories."""
        return [path for path in self.listing().folders if "/" not in path]

    def listing(self, without: Collection[str] = ()) -> Listing:
        """Return everything except the content of these top-level directories. An empty object named like a version
        stands for an empty directory, as consoles create them. Ensembles have such directories."""
        files = [file for file in self.files if file.path and file.path.partition("/")[0] not in without]
        empty = {file.path for file in files if not file.size and file.path.isdecimal()}
        above = (str(folder) for file in files for folder in PurePosixPath(file.path).parents)
        folders = sorted(({*above} - {"."}) | empty)
        return Listing(tuple(file for file in files if file.path not in empty), tuple(folders))

    def read(self, path: str, most: int) -> bytes:
        """Return a small file's content. Raises OSError, also for a larger file."""
        file = self._file(path)
        if file.size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
        return self.store.read(f"{self.name}/{path}", file.mark, file.size)

    def chunks(self, path: str) -> Iterator[bytes]:
        return self.store.chunks(f"{self.name}/{path}", self._file(path).size)

    def _file(self, path: str) -> SourceFile:
        for file in self.files:
            if file.path == path:
                return file
        raise FileNotFoundError(errno.ENOENT, "there is no such object", f"{self.where}/{path}")
