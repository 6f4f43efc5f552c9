"""A model repository in an object store, as Triton reads it at `s3://`, `gs://` and `as://`.

Nothing can be renamed there, so a version's files come one by one, and last of all the configuration that names it:
before that Triton does not look at it. A new model has a configuration first that lets Triton load nothing. What is
staged is on this machine; the lease lies beside the repository, in `.tidegate/<its name>/<model>/`.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from time import monotonic

from tidegate_contracts.manifest import Manifest, ManifestFile

from ...errors import BusyError, NotFoundError
from ...failures import explained
from ...hashing import sha256_of
from ...parallel import Progress, in_parallel
from ...repository import StoredFile
from . import staged as staging
from .config import CONFIG, ENTRY, closed_config, published_path, version_number
from .lease import Lease, read_holder
from .object_store import ObjectStore, Tag, TakenError
from .repository import STATE, TritonRepository, checked_model, checked_path

_THREADS = 4
_SMALL = 8 << 20
"""Bytes up to which an object is put by one conditional request."""
_FREE = b"{}"


class ObjectRepository(TritonRepository):
    """See `Repository`, which this is one of."""

    room = "make room, or name a larger disk in TIDEGATE_CACHE"

    def __init__(self, url: str) -> None:
        """Open the repository at a URL; raises UsageError."""
        super().__init__()
        self._store = ObjectStore(url)
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
        names = self._store.folders(self._place(model))
        return sorted(number for name in names if (number := version_number(name)))

    def files(self, model: str) -> list[StoredFile]:
        """Return every file of a model, in the order of their paths."""
        return sorted(StoredFile(path, size) for path, size in self._store.sizes(self._place(model)).items())

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        try:
            yield from self._store.chunks(f"{self._place(model)}/{checked_path(path)}")
        except NotFoundError:
            raise NotFoundError(f"model {model} has no file {path}", where=self.where) from None

    def config_age(self, model: str) -> float:
        """Return the seconds since config.pbtxt was written."""
        _, _, written = self._store.read(f"{self._place(model)}/{CONFIG}")
        return time.time() - written

    def remove_model(self, model: str) -> None:
        """Remove a model: it is closed first, and its configuration goes last."""
        self.withdraw(model)
        self._delete(model, [file.path for file in self.files(model) if file.path != CONFIG])
        self._delete(model, [file.path for file in self.files(model)])

    def _lease(self, model: str, who: str) -> "ObjectLease":
        return ObjectLease(model, self._store, f"{STATE}/{self._store.root}/{model}", who)

    def _staging(self, model: str, number: int) -> Path:
        return self._staged / checked_model(model) / str(number)

    def _bring(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None
    ) -> bool:
        """Bring a version's files in, and read all of them back."""
        place = self._place(model)
        there = {file.path for file in self.files(model)}
        missing = [file for file in manifest.files if published_path(file.path, number) not in there]
        if missing:
            with explained(str(staged)):
                staging.verify(staged, manifest)
            if CONFIG not in there:
                with suppress(TakenError):
                    self._store.put(f"{place}/{CONFIG}", closed_config(config).encode(), "create")

        def bring(file: ManifestFile) -> None:
            self._put_once(model, f"{place}/{published_path(file.path, number)}", staged / file.path, file.size)
            if progress:
                progress(file.size)

        in_parallel(bring, missing, _THREADS)
        self._check_same(model, number, manifest)
        return bool(missing)

    def _remove_version(self, model: str, number: int) -> None:
        """Remove it file by file: Triton does not look at what its configuration does not name."""
        self._delete(model, [file.path for file in self.files(model) if file.path.startswith(f"{number}/")])

    def _place(self, model: str) -> str:
        return f"{self._store.root}/{checked_model(model)}"

    def _entries(self, place: str) -> Mapping[int, Sequence[str]]:
        found: dict[int, list[str]] = {}
        for path in sorted(self._store.sizes(place)):
            version, _, rest = path.partition("/")
            if rest and (number := version_number(version)):
                beside = found.setdefault(number, [])
                beside += [rest.removeprefix(f"{ENTRY}/")] if rest.startswith(f"{ENTRY}/") else []
        return found

    def _copy(self, model: str, place: str, source: str, target: str) -> None:
        with suppress(NotFoundError):
            if self._digest(f"{place}/{source}") == self._digest(f"{place}/{target}"):
                return
        self._check_lock(model)
        self._store.copy(f"{place}/{source}", f"{place}/{target}")

    def _put(self, model: str, place: str, path: str, data: bytes) -> None:
        with suppress(NotFoundError):
            if self.read(model, path) == data:
                return
        self._check_lock(model)
        self._store.put(f"{place}/{path}", data)

    def _remove(self, place: str, path: str) -> None:
        self._store.delete(f"{place}/{path}")

    def _put_once(self, model: str, to: str, source: Path, size: int) -> None:
        """Put a file that is not there; large ones in parts, of which none is seen before all are there."""
        self._check_lock(model)
        if size > _SMALL:
            self._store.put(to, source)
            return
        with suppress(TakenError):  # what is there instead is read back like all else
            self._store.put(to, source.read_bytes(), "create")

    def _digest(self, path: str) -> str:
        return sha256_of(self._store.chunks(path))

    def _delete(self, model: str, paths: list[str]) -> None:
        place = self._place(model)
        in_parallel(lambda path: self._store.delete(f"{place}/{path}"), paths, _THREADS)


class ObjectLease(Lease):
    """The lease of one model as an object, whose every write is conditional on what it was before.

    So of two only one succeeds. Its age is measured by the store's own clock.
    """

    BEAT_SECONDS = 10.0
    EXPIRY_SECONDS = 60.0

    def __init__(self, model: str, store: ObjectStore, folder: str, who: str) -> None:
        super().__init__(model, who)
        self._store = store
        self._path = f"{folder}/lease.json"
        self._clock = f"{folder}/clock-"
        self._text = json.dumps(asdict(self._me)).encode()
        self._state: Tag = None
        self._renewed = 0.0
        self._lost = False

    def check(self) -> None:
        """Raise BusyError when it may be another publisher's, since it could not be renewed for long."""
        if self._lost or monotonic() - self._renewed > self.EXPIRY_SECONDS - self.BEAT_SECONDS:
            why = "this process could not renew its lease in time, and somebody else may have taken it"
            raise BusyError(f"model {self._model} may be changed by somebody else", why=why, do="run the command again")

    @contextmanager
    def _acquired(self) -> Iterator[None]:
        asked = monotonic()
        self._state = self._acquire()
        self._renewed = asked
        yield

    def _acquire(self) -> Tag:
        with suppress(TakenError):
            return self._store.put(self._path, self._text, "create")
        said, state, renewed = self._store.read(self._path)
        if said != _FREE and (left := renewed + self.EXPIRY_SECONDS - self._now()) > 0:
            raise read_holder(said).busy(self._model, left)
        try:
            return self._store.put(self._path, self._text, state)
        except TakenError:
            raise read_holder(self._store.read(self._path)[0]).busy(self._model, self.EXPIRY_SECONDS) from None

    def _renew(self) -> None:
        asked = monotonic()
        try:
            self._state = self._store.put(self._path, self._text, self._state)
        except TakenError:
            self._lost = True
        else:
            self._renewed = asked

    def _release(self) -> None:
        with suppress(TakenError):
            self._store.put(self._path, _FREE, self._state)

    def _now(self) -> float:
        path = self._clock + token_hex(8)
        self._store.put(path, b"")
        try:
            return self._store.read(path)[2]
        finally:
            self._store.delete(path)
