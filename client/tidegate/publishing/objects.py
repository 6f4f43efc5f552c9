"""A model repository in an object store, as Triton reads it at `s3://`, `gs://` and `as://`.

Nothing can be renamed there, so a version's files come one by one, and last of all the configuration that names it:
before that Triton does not look at it. A new model has a configuration first that lets Triton load nothing. What is
staged is on this machine; the lease lies beside the repository, in `.tidegate/<its name>/<model>/`.

Credentials are those of the environment, as each cloud's own tools find them (for AWS: keys, IRSA, the instance's).
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any, Final, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store
from tidegate_contracts.manifest import BESIDE, PUBLISHED_MANIFEST, Manifest, ManifestFile, published_path
from tidegate_contracts.object_url import FORMS, parsed

from ..errors import BusyError, NotFoundError, UsageError
from ..failures import explained, of_store
from ..hashing import sha256_of
from ..parallel import Progress, in_parallel
from ..repository import Configs, StoredFile
from . import staged as staging
from . import steps
from .lease import Lease, read_holder
from .repository import STATE, THREADS, PublishedRepository, checked_model, checked_path, version_number

_SMALL: Final = 8 << 20  # Bytes up to which an object is put by one conditional request.
_FREE: Final = b"{}"
Tag = Any  # What identifies one state of an object: obstore's UpdateVersion.
_PART: Final = 8 << 20
_RETRY: Final[Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}
"""Each request: a lease must not wait for longer than it lasts."""


class TakenError(Exception):
    """An object is there already, or is no more what it was."""


class ObjectStore:
    """The parent of a repository's folder in an object store."""

    def __init__(self, url: str) -> None:
        """Open it; raises UsageError for what is no URL of a repository."""
        self.where = url
        try:
            place = parsed(url)
        except ValueError:
            raise UsageError("that is no URL of a repository in an object store", do=f"write {FORMS}") from None
        if not place.folders:
            why = "beside it lies what is locked, and every folder in it is taken for a model"
            raise UsageError("the repository is a whole bucket", where=url, why=why, do=f"give it a folder: {FORMS}")
        *above, self.root = place.folders
        options: dict[str, Any] = {"prefix": "/".join(above) or None, "retry_config": _RETRY}
        if place.scheme == "gs":
            self._store: Any = GCSStore(place.bucket, **options)
        elif place.scheme == "as":
            self._store = AzureStore(place.bucket, account_name=place.account, **options)
        else:
            plain = (place.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://")
            options |= {"endpoint": place.endpoint} if place.endpoint else {}
            self._store = S3Store(place.bucket, client_options={"allow_http": True} if plain else None, **options)

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders below a path."""
        with self._explained():
            found = obstore.list_with_delimiter(self._store, path)["common_prefixes"]
            return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def sizes(self, path: str) -> dict[str, int]:
        """Return every object below a path, by its own path below that, with its size in bytes."""
        with self._explained():
            pages = obstore.list(self._store, f"{path}/")
            return {each["path"].removeprefix(f"{path}/"): each["size"] for page in pages for each in page}

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of an object; raises NotFoundError."""
        with self._explained():
            for chunk in obstore.get(self._store, path).stream(min_chunk_size=_PART):
                yield bytes(chunk)

    def read(self, path: str) -> tuple[bytes, Tag, float]:
        """Return the content of a small object, its state, and the store's own time (seconds) of it."""
        with self._explained():
            found = obstore.get(self._store, path)
            meta = found.meta
            return bytes(found.bytes()), _tag(meta), meta["last_modified"].timestamp()

    def put(self, path: str, data: bytes | Path, mode: "Literal['create', 'overwrite'] | Tag" = "overwrite") -> Tag:
        """Write an object whole, and return its state; raises TakenError where the mode does not allow it."""
        with self._explained(), steps.step(f"put {path.rpartition('/')[2]}"):
            try:
                return _tag(obstore.put(self._store, path, data, mode=mode, chunk_size=_PART))
            except (AlreadyExistsError, PreconditionError):
                raise TakenError(path) from None

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, at once for all readers."""
        with self._explained(), steps.step(f"copy to {target.rpartition('/')[2]}"):
            obstore.copy(self._store, source, target)

    def delete(self, path: str) -> None:
        """Delete an object; nothing where there is none."""
        with self._explained(), steps.step(f"delete {path.rpartition('/')[2]}"):
            obstore.delete(self._store, path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError("there is no such object", where=self.where) from None
        except BaseError as error:
            raise of_store(error, self.where) from None


def _tag(said: Any) -> Tag:
    """Return what a store tells of an object's state: none of it may be None when it is given back."""
    return {name: said[name] for name in ("e_tag", "version") if said.get(name) is not None}


class ObjectRepository(PublishedRepository):
    """See `Repository`, which this is one of."""

    room = "make room, or name a larger disk in TIDEGATE_CACHE"

    def __init__(self, url: str, configs: Configs) -> None:
        """Open the repository at a URL; raises UsageError."""
        super().__init__(configs)
        self._store = ObjectStore(url)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
        place = Path(os.environ.get("TIDEGATE_CACHE") or cache) / "staged"
        self._staged = place / hashlib.sha256(url.encode()).hexdigest()[:16]

    @property
    def where(self) -> str:
        """URL of the repository."""
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
        """Return the seconds since the configuration was written."""
        _, _, written = self._store.read(f"{self._place(model)}/{self.configs.CONFIG}")
        return time.time() - written

    def put_away(self, model: str, config: str) -> None:
        """See `Repository`: it is found, but as one without versions, which a Triton that starts anew does not miss."""
        self._check_lock(model)
        self._have(model, self._place(model), self.configs.CONFIG, self.configs.closed_config(config).encode())

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
            if self.configs.CONFIG not in there:
                with suppress(TakenError):
                    self._store.put(
                        f"{place}/{self.configs.CONFIG}", self.configs.closed_config(config).encode(), "create"
                    )

        def bring(file: ManifestFile) -> None:
            to, source = f"{place}/{published_path(file.path, number)}", staged / file.path
            self._check_lock(model)
            if file.size > _SMALL:  # in parts, of which none is seen before all are there
                self._store.put(to, source)
            else:
                with suppress(TakenError):  # what is there instead is read back like all else
                    self._store.put(to, source.read_bytes(), "create")
            if progress:
                progress(file.size)

        in_parallel(bring, missing, THREADS)
        if missing:
            with suppress(TakenError):
                self._store.put(f"{place}/{number}/{PUBLISHED_MANIFEST}", manifest.canonical(), "create")
        self._check_same(model, number, manifest)
        return bool(missing)

    def _remove_version(self, model: str, number: int) -> None:
        """Remove it file by file: Triton does not look at what its configuration does not name."""
        place = self._place(model)
        files = [file.path for file in self.files(model) if file.path.startswith(f"{number}/")]
        in_parallel(lambda path: self._remove(place, path), files, THREADS)

    def _place(self, model: str) -> str:
        return f"{self._store.root}/{checked_model(model)}"

    def _entries(self, place: str) -> Mapping[int, Sequence[str]]:
        found: dict[int, list[str]] = {}
        for path in sorted(self._store.sizes(place)):
            version, _, rest = path.partition("/")
            if rest and (number := version_number(version)):
                beside = found.setdefault(number, [])
                beside += [rest.removeprefix(f"{BESIDE}/")] if rest.startswith(f"{BESIDE}/") else []
        return found

    def _digest(self, place: str, path: str) -> str | None:
        try:
            return sha256_of(self._store.chunks(f"{place}/{path}"))
        except NotFoundError:
            return None

    def _write(self, model: str, place: str, path: str, data: bytes | str) -> None:  # noqa: ARG002
        if isinstance(data, str):
            self._store.copy(f"{place}/{data}", f"{place}/{path}")
        else:
            self._store.put(f"{place}/{path}", data)

    def _remove(self, place: str, path: str) -> None:
        self._store.delete(f"{place}/{path}")


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
        self._renewed = monotonic()
        self._state = self._acquire()
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
