"""A model repository in an object store, as Triton reads it at `s3://`, `gs://` and `as://`.

Nothing can be renamed there, so a version's files come one by one, and last of all the configuration that names it:
before that Triton does not look at it. A new model has a configuration first that lets Triton load nothing. What is
staged is on this machine; the lease lies beside the repository, in `.tidegate/<its name>/<model>/`.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tidegate_contracts.manifest import Manifest

from ..errors import IntegrityError, NotFoundError, UnfinishedError
from ..failures import explained
from ..hashing import sha256_of
from . import staged as staging
from . import steps
from .compare import differences
from .config import CONFIG, ENTRY, closed_config, published_path, read_published
from .object_lease import ObjectLease
from .object_store import ObjectStore, TakenError
from .repository import (
    Progress,
    Repository,
    StoredFile,
    check_removable,
    checked_model,
    checked_path,
    version_number,
)

STATE = ".tidegate"
_THREADS = 4
_SMALL = 8 << 20
"""Bytes up to which an object is put by one conditional request."""
_Item = TypeVar("_Item")


class ObjectRepository(Repository):
    """See `Repository`, which this is one of."""

    def __init__(self, url: str) -> None:
        """Open the repository at a URL; raises UsageError."""
        self._store = ObjectStore(url)
        self._leases: dict[str, ObjectLease] = {}
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
        place = Path(os.environ.get("TIDEGATE_CACHE") or cache) / "staged"
        self._staged = place / hashlib.sha256(url.encode()).hexdigest()[:16]

    @property
    def where(self) -> str:
        """Its URL."""
        return self._store.where

    def models(self) -> list[str]:
        """Return the names of its models."""
        return self._store.folders(self._store.root)

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, ascending."""
        names = self._store.folders(self._path(model))
        return sorted(number for name in names if (number := version_number(name)))

    def files(self, model: str) -> list[StoredFile]:
        """Return every file of a model, in the order of their paths."""
        return sorted(StoredFile(path, size) for path, size in self._store.sizes(self._path(model)).items())

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        try:
            yield from self._store.chunks(f"{self._path(model)}/{checked_path(path)}")
        except NotFoundError:
            raise NotFoundError(f"model {model} has no file {path}", where=self.where) from None

    def config_age(self, model: str) -> float:
        """Return the seconds since config.pbtxt was written."""
        _, _, written = self._store.read(f"{self._path(model)}/{CONFIG}")
        return time.time() - written

    @contextmanager
    def lock(self, model: str, who: str) -> Iterator[None]:
        """Be the only one to change a model."""
        lease = ObjectLease(model, self._store, f"{STATE}/{self._store.root}/{checked_model(model)}", who)
        with ExitStack() as held:
            held.enter_context(lease.held())
            self._leases[model] = lease
            try:
                yield
            finally:
                del self._leases[model]

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        """Return a folder of this machine to fetch the entry of a version into, with what a killed run fetched."""
        self._check_lock(model)
        folder = self._staged / checked_model(model) / str(number)
        with explained(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            there = sum(status.st_size for _, status in staging.walk(folder))
            if (missing := size - there) > (free := shutil.disk_usage(folder).free):
                what = f"version {number} of model {model} needs {missing} bytes more, and {free} are free"
                do = "make room, or name a larger disk in TIDEGATE_CACHE, then run the same command again"
                raise UnfinishedError(what, where=str(folder), do=do)
        return folder

    def publish(
        self,
        model: str,
        number: int,
        staged: Path,
        manifest: Manifest,
        config: str,
        progress: Progress | None = None,
    ) -> bool:
        """Bring a version's files in, read all of them back, and then bring in the configuration."""
        if manifest.model != model:
            raise IntegrityError(f"the manifest is that of model {manifest.model}, not of {model}", where=self.where)
        self._check_lock(model)
        there = {file.path for file in self.files(model)}
        missing = [file for file in manifest.files if published_path(file.path, number) not in there]
        if missing:
            with explained(str(staged)):
                staging.verify(staged, manifest)
            if CONFIG not in there:
                self._put_closed(model, config)

        def bring(path: str, size: int) -> None:
            self._put_once(model, published_path(path, number), staged / path, size)
            if progress:
                progress(size)

        _each(lambda file: bring(file.path, file.size), missing)
        if found := differences(self, model, number, manifest):
            what = f"version {number} of model {model} is there with other content: {'; '.join(found)}"
            do = "it is never overwritten: find out who changed it, and have an admin remove it (tidegate prune)"
            raise IntegrityError(what, where=self.where, do=do)
        self.write_config(model, config)
        with explained(str(staged)):
            steps.remove(staged)
        return bool(missing)

    def write_config(self, model: str, config: str) -> None:
        """Bring in a configuration: the owner's files beside the versions first, and itself last."""
        self._check_lock(model)
        files = {file.path: file.size for file in self.files(model)}
        versions = {path.partition("/")[0] for path in files}
        published = read_published(config)
        for number in filter(None, (published.owner, *published.served)):
            if str(number) not in versions:
                what = f"version {number} of model {model}, which its configuration needs, is not published"
                raise NotFoundError(what, where=self.where)
        own = f"{published.owner}/{ENTRY}/"
        beside = [path.removeprefix(own) for path in files if path.startswith(own) and path != own + CONFIG]
        for path in beside:
            self._copy_changed(model, own + path, path)
        self._put_changed(model, CONFIG, config.encode())
        # What former configurations needed beside the versions is in the versions' own folders too.
        copies = {path.partition(f"/{ENTRY}/")[2] for path in files if f"/{ENTRY}/" in path}
        for path in copies - {CONFIG, *beside}:
            if path in files:
                self._store.delete(f"{self._path(model)}/{path}")

    def remove_version(self, model: str, number: int) -> None:
        """Remove a version, file by file: Triton does not look at what its configuration does not name."""
        self._check_lock(model)
        check_removable(self, model, number)
        self._delete(model, [file.path for file in self.files(model) if file.path.startswith(f"{number}/")])

    def withdraw(self, model: str) -> None:
        """Have Triton serve nothing of a model, and leave its files."""
        self._check_lock(model)
        if (config := self.config(model)) is not None:
            self._put_changed(model, CONFIG, closed_config(config).encode())

    def remove_model(self, model: str) -> None:
        """Remove a model: it is closed first, and its configuration goes last."""
        self.withdraw(model)
        self._delete(model, [file.path for file in self.files(model) if file.path != CONFIG])
        self._delete(model, [file.path for file in self.files(model)])

    def _path(self, model: str) -> str:
        return f"{self._store.root}/{checked_model(model)}"

    def _check_lock(self, model: str) -> None:
        if (lease := self._leases.get(model)) is None:
            raise RuntimeError(f"whoever changes model {model} holds its lock")
        lease.check()

    def _put_closed(self, model: str, config: str) -> None:
        with suppress(TakenError):
            self._store.put(f"{self._path(model)}/{CONFIG}", closed_config(config).encode(), "create")

    def _put_once(self, model: str, path: str, source: Path, size: int) -> None:
        """Put a file that is not there; large ones in parts, of which nobody sees any before all are there."""
        self._check_lock(model)
        to = f"{self._path(model)}/{path}"
        if size > _SMALL:
            self._store.put(to, source)
            return
        with suppress(TakenError):  # what is there instead is read back like all else
            self._store.put(to, source.read_bytes(), "create")

    def _put_changed(self, model: str, path: str, data: bytes) -> None:
        with suppress(NotFoundError):
            if self.read(model, path) == data:
                return
        self._check_lock(model)
        self._store.put(f"{self._path(model)}/{path}", data)

    def _copy_changed(self, model: str, source: str, target: str) -> None:
        with suppress(NotFoundError):
            if self._digest(model, source) == self._digest(model, target):
                return
        self._check_lock(model)
        self._store.copy(f"{self._path(model)}/{source}", f"{self._path(model)}/{target}")

    def _digest(self, model: str, path: str) -> str:
        return sha256_of(self.chunks(model, path))

    def _delete(self, model: str, paths: list[str]) -> None:
        _each(lambda path: self._store.delete(f"{self._path(model)}/{path}"), paths)


def _each(do: Callable[[_Item], None], items: list[_Item]) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(do, items):
            pass
