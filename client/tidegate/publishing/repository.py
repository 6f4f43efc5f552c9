"""One model repository in a store. The package's docstring describes its layout."""

import hashlib
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tidegate_contracts.manifest import (
    BESIDE,
    ENTRY_VERSION,
    PUBLISHED_MANIFEST,
    Manifest,
    ManifestFile,
    is_inside,
    published_path,
)

from ..errors import IntegrityError, NotFoundError, RefusedError, TidegateError, UnfinishedError, UsageError
from ..failures import explained
from ..hashing import sha256_of
from ..names import RULE, is_name
from ..parallel import Progress, in_parallel
from ..repository import READ_LIMIT, Configs, StoredFile
from .lease import Lease
from .stores import STATE, Store, allow, make_folder, walk

_THREADS: Final = 4  # for comparing files
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_LIKE_A_NUMBER: Final = re.compile(r"\s*[-+]?[0-9]")


class Repository:
    """One model repository. Methods raise UnreachableError, and IntegrityError for links and special files."""

    def __init__(self, store: Store, configs: Configs) -> None:
        self._store = store
        self.configs = configs  # how its servers learn which versions to serve
        self.where = store.where  # directory or URL of the repository
        self._leases: dict[str, Lease] = {}

    def models(self) -> list[str]:
        return self._store.folders(self._store.root)

    def versions(self, model: str) -> list[int]:
        return sorted(filter(None, map(version_number, self._store.folders(self._path(model)))))

    def files(self, model: str) -> list[StoredFile]:
        return sorted(StoredFile(path, size) for path, size in self._store.sizes(self._path(model)).items())

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        if not is_inside(path):
            raise UsageError(f"the path {path!r} leads out of the model's directory")
        try:
            yield from self._store.chunks(self._path(model, path))
        except NotFoundError:
            raise NotFoundError(f"model {model} has no file {path}", where=self.where) from None

    def read(self, model: str, path: str, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a small file. Raises NotFoundError, and IntegrityError if it is larger than `limit`."""
        parts = []
        for chunk in self.chunks(model, path):
            parts.append(chunk)
            if (limit := limit - len(chunk)) < 0:
                raise IntegrityError(f"the file {path} of model {model} exceeds the size limit", where=self.where)
        return b"".join(parts)

    def config(self, model: str) -> str | None:
        try:
            return self.read(model, self.configs.CONFIG).decode("utf-8", "replace")
        except NotFoundError:
            return None

    def config_age(self, model: str) -> float:
        """Return the seconds since the configuration was written, by the local clock. Raises NotFoundError."""
        return time.time() - self._store.modified(self._path(model, self.configs.CONFIG))

    def differences(self, model: str, number: int, manifest: Manifest, progress: Progress | None = None) -> list[str]:
        """Return the differences between a published version and its manifest, except Python's by-products."""
        expected = {published_path(file.path, number): file for file in manifest.files}
        own = f"{number}/{PUBLISHED_MANIFEST}"  # versions published by earlier clients have none
        files = [file for file in self.files(model) if file.path.startswith(f"{number}/")]
        there = {file.path: file.size for file in files if file.path in expected or not _is_byproduct(file.path)}
        if own in there:
            expected[own] = ManifestFile(path=own, size=len(manifest.canonical()), sha256=manifest.digest())
        found = wrong_sizes(there, expected)
        to_read = [(path, file) for path, file in expected.items() if there.get(path) == file.size]

        def wrong(item: tuple[str, ManifestFile]) -> str | None:
            path, file = item
            right = sha256_of(self.chunks(model, path), progress) == file.sha256
            return None if right else f"{path} has other content than was registered"

        return sorted([*found, *filter(None, in_parallel(wrong, to_read, _THREADS))])

    def strays(self, model: str, manifests: Mapping[int, Manifest]) -> list[str]:
        """Return the files that are in no manifest, and files next to the versions that are not the owner's."""
        return sorted(set(self._strays(model, manifests)))

    def _strays(self, model: str, manifests: Mapping[int, Manifest]) -> Iterator[str]:
        expected = {
            published_path(file.path, number): file for number, manifest in manifests.items() for file in manifest.files
        }
        owner = None
        with suppress(TidegateError):
            owner = self.configs.read_published(self.config(model) or "").owner
        there = [stored.path for stored in self.files(model)]
        for path in there:
            first, _, rest = path.partition("/")
            number = version_number(first) if rest else None
            if number is not None and number not in manifests:
                yield f"version {number} is not registered"
            elif number is not None and path not in expected and path != f"{first}/{PUBLISHED_MANIFEST}":
                why = " (Python wrote it: mount the repository read-only in Triton)"
                yield f"{path} is in no manifest{why if _is_byproduct(path) else ''}"
            elif number is None and path != self.configs.CONFIG:
                source = None if owner is None else expected.get(f"{owner}/{BESIDE}/{path}")
                if source is None:
                    yield f"{path} does not belong to a served version"
                elif sha256_of(self.chunks(model, path)) != source.sha256:
                    yield f"{path} differs from version {owner}"
        beside = f"{owner}/{BESIDE}/"
        for path in (path.removeprefix(beside) for path in expected if path.startswith(beside)):
            if path not in there:
                yield f"{path} is missing, but version {owner} needs it"

    @contextmanager
    def lock(self, model: str, who: str, *, expiry_seconds: float = 60.0, beat_seconds: float = 10.0) -> Iterator[None]:
        """Lock a model, which all following methods require. Raises BusyError, which names the holder. The lock of
        a process that dies expires."""
        folder = f"{STATE}/{self._store.root}/{checked_model(model)}/lease"
        lease = Lease(self._store, folder, model, who, expiry_seconds, beat_seconds)
        with lease.held():
            self._leases[model] = lease
            try:
                self._store.clean(model)
                yield
            finally:
                del self._leases[model]

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        """Return a directory to fetch a version into. Keeps files of a killed run. Raises UnfinishedError if full."""
        self._check_lock(model)
        folder = self._store.staging(checked_model(model), number)
        with explained(self.where):
            make_folder(folder)
            there = sum(status.st_size for _, status in walk(folder))
            missing, free = size - there, shutil.disk_usage(folder).free
        if missing > free:
            what = f"version {number} of model {model} needs {missing} more bytes, but only {free} are free"
            raise UnfinishedError(what, where=folder, do=f"{self._store.when_full}, then run the same command again")
        return folder

    def publish(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None = None
    ) -> bool:
        """Add a fetched and verified version, then write its configuration (`write_config`). Returns False if the
        version was there already. Raises IntegrityError if it had other content."""
        if manifest.model != model:
            raise IntegrityError(f"the manifest is of model {manifest.model}, not of {model}", where=self.where)
        self._check_lock(model)
        version, existed = self._path(model, str(number)), number in self.versions(model)
        there = self._store.sizes(version) if existed else {}
        to_bring = {
            published_path(file.path, number).partition("/")[2]: staged / file.path for file in manifest.files
        } | {PUBLISHED_MANIFEST: staged / PUBLISHED_MANIFEST}
        missing = {path: file for path, file in to_bring.items() if path not in there}
        if missing:
            with explained(str(staged)):
                (staged / PUBLISHED_MANIFEST).unlink(missing_ok=True)
                _check_staged(staged, manifest)
                (staged / PUBLISHED_MANIFEST).write_bytes(manifest.canonical())
                allow(staged / PUBLISHED_MANIFEST, 0o444)
            if self.config(model) is None:
                # Otherwise Triton might load the version with defaults before its configuration is there.
                self._put(model, self.configs.CONFIG, self.configs.closed_config(config).encode())
            self._check_lock(model)
            self._store.bring(version, missing, progress or (lambda _bytes: None))
        if self._store.copies or existed:
            self._check_same(model, number, manifest, None if missing else progress)
        self.write_config(model, config)
        shutil.rmtree(staged, ignore_errors=True)
        return bool(missing)

    def write_config(self, model: str, config: str) -> None:
        """Write a configuration unless it is unchanged: its owner's files first, and itself last. Raises NotFoundError
        if a version that it needs is missing."""
        self._check_lock(model)
        published, entries = self.configs.read_published(config), self._entries(model)
        for number in filter(None, (published.owner, *published.served)):
            if number not in entries:
                what = f"the configuration of model {model} needs version {number}, which is not published"
                raise NotFoundError(what, where=self.where)
        beside = [path for path in entries.get(published.owner or 0, ()) if path != self.configs.CONFIG]
        for path in beside:
            self._copy(model, f"{published.owner}/{BESIDE}/{path}", path)
        self._put(model, self.configs.CONFIG, config.encode())
        # The files that former configurations needed are also in the versions' own directories.
        for path in sorted({path for paths in entries.values() for path in paths} - {self.configs.CONFIG, *beside}):
            self._delete(model, path)

    def remove_version(self, model: str, number: int) -> None:
        """Remove a version. Raises RefusedError if the configuration needs it."""
        self._check_lock(model)
        if self._check_removable(model, number) == number:
            for path in {*self._entries(model).get(number, ())} - {self.configs.CONFIG}:
                self._delete(model, path)
        self._store.delete_folder(self._path(model, str(number)))

    def withdraw(self, model: str) -> None:
        """Make the servers unload a model. Its files stay, because a server may be loading them."""
        self._check_lock(model)
        if (config := self.config(model)) is not None:
            self._put(model, self.configs.CONFIG, self.configs.withdrawn_config(config).encode())

    def remove_model(self, model: str) -> None:
        """Remove a withdrawn model. All servers must have unloaded it: one that still loads it can hang."""
        self._check_lock(model)
        self._store.delete_folder(self._path(model))

    def _path(self, model: str, *below: str) -> str:
        return "/".join((self._store.root, checked_model(model), *below))

    def _check_lock(self, model: str) -> None:
        if (lease := self._leases.get(model)) is None:
            raise RuntimeError(f"changing model {model} requires its lock")
        lease.check()

    def _entries(self, model: str) -> Mapping[int, Sequence[str]]:
        """Return the versions of a model, each with the paths of its entry's files outside the version directory."""
        found: dict[int, list[str]] = {number: [] for number in self.versions(model)}
        for file in self.files(model):
            version, _, rest = file.path.partition("/")
            if rest.startswith(f"{BESIDE}/") and (number := version_number(version)):
                found[number].append(rest.removeprefix(f"{BESIDE}/"))
        return found

    def _digest(self, path: str) -> str | None:
        try:
            return sha256_of(self._store.chunks(path))
        except (NotFoundError, IntegrityError):
            return None  # writing it again raises an error with the cause

    def _put(self, model: str, path: str, data: bytes) -> None:
        if self._digest(self._path(model, path)) != hashlib.sha256(data).hexdigest():
            self._check_lock(model)
            self._store.put(self._path(model, path), data)

    def _copy(self, model: str, source: str, target: str) -> None:
        one, other = self._path(model, source), self._path(model, target)
        lacks_mode = self._store.is_program(one) and not self._store.is_program(other)
        if lacks_mode or self._digest(one) != self._digest(other):
            self._check_lock(model)
            self._store.copy(one, other)

    def _delete(self, model: str, path: str) -> None:
        if self._digest(self._path(model, path)) is not None:
            self._check_lock(model)
            self._store.delete(self._path(model, path))

    def _check_same(self, model: str, number: int, manifest: Manifest, progress: Progress | None) -> None:
        if found := self.differences(model, number, manifest, progress):
            what = f"version {number} of model {model} exists with other content: {'; '.join(found)}"
            do = "versions are never overwritten. Find out who changed it, and remove it with `tidegate prune`"
            raise IntegrityError(what, where=self.where, do=do)

    def _check_removable(self, model: str, number: int) -> int | None:
        """Return the configuration's owner. Raises RefusedError if the version is needed."""
        if (config := self.config(model)) is None:
            return None
        published = self.configs.read_published(config)
        if number in published.served:
            why = "it is served"
        elif number == published.owner and published.served:
            why = "the configuration is based on it"
        elif published.owner is None:
            why = "tidegate did not write the configuration, so Triton may serve it"
        else:
            return published.owner
        raise RefusedError(f"version {number} of model {model} cannot be removed: {why}", where=self.where)


def version_number(name: str) -> int | None:
    """Return the version number of a directory's name, or None."""
    return int(name) if _NUMBER.fullmatch(name) else None


def checked_model(model: str) -> str:
    """Return a valid model name. Raises UsageError if it is invalid, or would lead to another place."""
    if not is_name(model):
        raise UsageError(f"{model!r} is not a valid name of a model", do=RULE)
    return model


def wrong_sizes(there: Mapping[str, int], expected: Mapping[str, ManifestFile]) -> list[str]:
    """Return a sentence for each file that is missing, of another size, or in no manifest, sorted."""
    found = [f"{path} is missing" for path in expected.keys() - there.keys()]
    found += [f"{path} is in no manifest" for path in there.keys() - expected.keys()]
    for path in there.keys() & expected.keys():
        if there[path] != expected[path].size:
            found.append(f"{path} has {there[path]} bytes instead of {expected[path].size}")
    return sorted(found)


def _check_staged(staged: Path, manifest: Manifest) -> None:
    """Check that exactly the files of a manifest are staged, and make them readable. Raises IntegrityError."""
    for file in manifest.files:
        first, _, rest = file.path.partition("/")
        if rest.split("/")[0] == BESIDE and first == ENTRY_VERSION:
            raise IntegrityError(f"the entry has a directory {BESIDE}, which is reserved: {file.path}", where=staged)
        if _LIKE_A_NUMBER.match(first) and not (first == ENTRY_VERSION and rest):
            why = "Triton treats every directory whose name starts like a number as a version, and some names crash it"
            do = f"register an entry with one version directory, {ENTRY_VERSION}"
            what = f"the entry has another version directory: {file.path}"
            raise IntegrityError(what, where=staged, why=why, do=do)
    there = {path: status.st_size for path, status in walk(staged)}
    if problems := wrong_sizes(there, {file.path: file for file in manifest.files}):
        what = f"the fetched model {manifest.model} differs from what was registered: {'; '.join(problems)}"
        raise IntegrityError(what, where=staged, do=f"delete {staged} and run the command again")
    for file in manifest.files:
        allow(staged / file.path, 0o555 if file.executable else 0o444)


def _is_byproduct(path: str) -> bool:
    """Return whether Triton's Python backend wrote a file next to a model.py, which it does on a writable mount."""
    return path.endswith(".pyc") and path.split("/")[-2:-1] == ["__pycache__"]
