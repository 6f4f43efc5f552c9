"""What model repositories have in common, in a folder or in an object store: see this package's docstring."""

import hashlib
import re
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tidegate_contracts.manifest import BESIDE, PUBLISHED_MANIFEST, Manifest, ManifestFile, is_inside, published_path

from ..errors import IntegrityError, NotFoundError, RefusedError, TidegateError, UnfinishedError, UsageError
from ..failures import explained
from ..hashing import sha256_of
from ..names import RULE, is_name
from ..parallel import Progress, in_parallel
from ..repository import READ_LIMIT, Configs, Repository
from . import staged as staging
from . import steps
from .lease import Lease

STATE = ".tidegate"  # Folder beside the repository, and so never below what Triton reads, of what is staged and locked.
THREADS = 4  # For what is read or sent to be compared.
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")


class PublishedRepository(Repository):
    """The order of what is done; how it is done is the subclasses'.

    A place is where a model's files lie, or are put together before they are seen: a folder, or a prefix of keys.
    """

    room = ""  # What to do where there is no room to stage a version.

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._leases: dict[str, Lease] = {}

    @property
    def configs(self) -> Configs:
        """How its servers are told which versions to serve."""
        return self._configs

    def read(self, model: str, path: str, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a small file."""
        parts = []
        for chunk in self.chunks(model, path):
            parts.append(chunk)
            if (limit := limit - len(chunk)) < 0:
                raise IntegrityError(f"the file {path} of model {model} is larger than it can be", where=self.where)
        return b"".join(parts)

    def config(self, model: str) -> str | None:
        """Return the model's published configuration, if it has one."""
        try:
            return self.read(model, self.configs.CONFIG).decode("utf-8", "replace")
        except NotFoundError:
            return None

    def differences(self, model: str, number: int, manifest: Manifest, progress: Progress | None = None) -> list[str]:
        """Return how a published version differs from its manifest; Python's own by-products are no difference."""
        expected = {published_path(file.path, number): file for file in manifest.files}
        own = f"{number}/{PUBLISHED_MANIFEST}"  # versions that were published before there were any have none
        files = [file for file in self.files(model) if file.path.startswith(f"{number}/")]
        there = {file.path: file.size for file in files if file.path in expected or not _is_byproduct(file.path)}
        if own in there:
            expected[own] = ManifestFile(path=own, size=len(manifest.canonical()), sha256=manifest.digest())
        found = staging.wrong_sizes(there, expected)
        to_read = [(path, file) for path, file in expected.items() if there.get(path) == file.size]

        def wrong(item: tuple[str, ManifestFile]) -> str | None:
            path, file = item
            right = sha256_of(self.chunks(model, path), progress) == file.sha256
            return None if right else f"{path} has other content than was registered"

        return sorted([*found, *filter(None, in_parallel(wrong, to_read, THREADS))])

    def strays(self, model: str, manifests: Mapping[int, Manifest]) -> list[str]:
        """Return versions and files that are in no manifest, and files beside the versions that are not the owner's."""
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
                why = " (Python wrote it: Triton's mount of the repository should be read-only)"
                yield f"{path} is in no manifest{why if _is_byproduct(path) else ''}"
            elif number is None and path != self.configs.CONFIG:
                source = None if owner is None else expected.get(f"{owner}/{BESIDE}/{path}")
                if source is None:
                    yield f"{path} is of no version that is served"
                elif sha256_of(self.chunks(model, path)) != source.sha256:
                    yield f"{path} is not as version {owner} has it"
        beside = f"{owner}/{BESIDE}/"
        for path in (path.removeprefix(beside) for path in expected if path.startswith(beside)):
            if path not in there:
                yield f"{path} is not there, which version {owner} has beside its folder"

    @contextmanager
    def lock(self, model: str, who: str) -> Iterator[None]:
        """Be the only one to change a model."""
        with ExitStack() as held:
            with explained(self.where):
                lease = self._lease(checked_model(model), who)
                held.enter_context(lease.held())
            self._leases[model] = lease
            try:
                yield
            finally:
                del self._leases[model]

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        """Return the folder to fetch the entry of a version into, with what a killed run fetched."""
        with explained(self.where):
            self._check_lock(model)
            folder = self._staging(model, number)
            steps.make_folder(folder)
            there = sum(status.st_size for _, status in staging.walk(folder))
            if (missing := size - there) > (free := shutil.disk_usage(folder).free):
                what = f"version {number} of model {model} needs {missing} bytes more, and {free} are free"
                do = f"{self.room}, then run the same command again"
                raise UnfinishedError(what, where=folder, do=do)
            return folder

    def publish(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None = None
    ) -> bool:
        """Bring a version in, and then its configuration."""
        if manifest.model != model:
            raise IntegrityError(f"the manifest is that of model {manifest.model}, not of {model}", where=self.where)
        with explained(self.where):
            self._check_lock(model)
            comes = self._bring(model, number, staged, manifest, config, progress)
            self.write_config(model, config)
            steps.remove(staged)
            return comes

    def write_config(self, model: str, config: str) -> None:
        """Bring in a configuration: the owner's files beside the versions first, and itself last."""
        with explained(self.where):
            self._check_lock(model)
            self._write_config(model, self._place(model), config)

    def remove_version(self, model: str, number: int) -> None:
        """Remove a version that Triton does not serve, and that the configuration does not come from."""
        with explained(self.where):
            self._check_lock(model)
            if self._check_removable(model, number) == number:
                place = self._place(model)
                for path in {*self._entries(place).get(number, ())} - {self.configs.CONFIG}:
                    self._remove(place, path)
            self._remove_version(model, number)

    def withdraw(self, model: str) -> None:
        """Have Triton let go of a model, and leave its files."""
        with explained(self.where):
            self._check_lock(model)
            if (config := self.config(model)) is not None:
                withdrawn = self.configs.withdrawn_config(config).encode()
                self._have(model, self._place(model), self.configs.CONFIG, withdrawn)

    @abstractmethod
    def put_away(self, model: str, config: str) -> None:
        """Have Triton find a model no more that it has let go of, where anything can be renamed."""

    @abstractmethod
    def _lease(self, model: str, who: str) -> Lease:
        """Return the lease of a model, not yet held."""

    @abstractmethod
    def _staging(self, model: str, number: int) -> Path:
        """Return the folder of what is staged of a version; it need not be there yet."""

    @abstractmethod
    def _bring(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None
    ) -> bool:
        """Bring a version's files in, all or none of them to be seen; False where they were there already."""

    @abstractmethod
    def _remove_version(self, model: str, number: int) -> None:
        """Remove a version; nothing where there is none."""

    @abstractmethod
    def _place(self, model: str) -> Any:
        """Return the place where Triton reads a model."""

    @abstractmethod
    def _entries(self, place: Any) -> Mapping[int, Sequence[str]]:
        """Return the versions in a place, each with the paths of what its entry has beside the version folder."""

    @abstractmethod
    def _digest(self, place: Any, path: str) -> str | None:
        """Return the SHA-256 of a file of a place, None where it is not there."""

    def _is_program(self, _place: Any, _path: str) -> bool:
        """Tell whether a file may be run; object stores keep no file modes, and Triton sets that of its own copy."""
        return False

    @abstractmethod
    def _write(self, model: str, place: Any, path: str, data: bytes | str) -> None:
        """Have bytes, or those of another path of the place, whole under a path."""

    @abstractmethod
    def _remove(self, place: Any, path: str) -> None:
        """Remove a file of a place; nothing where there is none."""

    def _check_lock(self, model: str) -> None:
        if (lease := self._leases.get(model)) is None:
            raise RuntimeError(f"whoever changes model {model} holds its lock")
        lease.check()

    def _have(self, model: str, place: Any, path: str, data: bytes | str) -> None:
        """Write bytes, or a copy of another path of the place, to a path, unless it is so already."""
        wanted = self._digest(place, data) if isinstance(data, str) else hashlib.sha256(data).hexdigest()
        lacks_mode = isinstance(data, str) and self._is_program(place, data) and not self._is_program(place, path)
        if self._digest(place, path) != wanted or lacks_mode:
            self._check_lock(model)
            self._write(model, place, path, data)

    def _check_same(self, model: str, number: int, manifest: Manifest, progress: Progress | None = None) -> None:
        if found := self.differences(model, number, manifest, progress):
            what = f"version {number} of model {model} is there with other content: {'; '.join(found)}"
            do = "it is never overwritten: find out who changed it, and have an admin remove it (tidegate prune)"
            raise IntegrityError(what, where=self.where, do=do)

    def _write_config(self, model: str, place: Any, config: str) -> None:
        published, entries = self.configs.read_published(config), self._entries(place)
        for number in filter(None, (published.owner, *published.served)):
            if number not in entries:
                what = f"version {number} of model {model}, which its configuration needs, is not published"
                raise NotFoundError(what, where=self.where)
        beside = [path for path in entries.get(published.owner or 0, ()) if path != self.configs.CONFIG]
        for path in beside:
            self._have(model, place, path, f"{published.owner}/{BESIDE}/{path}")
        self._have(model, place, self.configs.CONFIG, config.encode())
        # What former configurations needed beside the versions is in the versions' own folders too.
        for path in sorted({path for paths in entries.values() for path in paths} - {self.configs.CONFIG, *beside}):
            self._remove(place, path)

    def _check_removable(self, model: str, number: int) -> int | None:
        """Return the configuration's owner, whose files lie beside the versions; raises RefusedError."""
        if (config := self.config(model)) is None:
            return None
        published = self.configs.read_published(config)
        if number in published.served:
            why = "it is served"
        elif number == published.owner and published.served:
            why = "the configuration comes from it"
        elif published.owner is None:
            why = "tidegate did not write the configuration, so Triton may serve it"
        else:
            return published.owner
        raise RefusedError(f"version {number} of model {model} cannot be removed: {why}", where=self.where)


def version_number(name: str) -> int | None:
    """Return the number of a version's folder; None for names of others."""
    return int(name) if _NUMBER.fullmatch(name) else None


def checked_model(model: str) -> str:
    """Return a model's name that is one, and no way to other places; raises UsageError."""
    if not is_name(model):
        raise UsageError(f"{model!r} is no name for a model", do=RULE)
    return model


def checked_path(path: str) -> str:
    """Return a path that stays below the model's folder; raises UsageError."""
    if not is_inside(path):
        raise UsageError(f"the path {path!r} does not stay within the model's folder")
    return path


def _is_byproduct(path: str) -> bool:
    """Tell whether a file is one that Triton's Python backend writes beside a model.py, wherever it may write."""
    return path.endswith(".pyc") and path.split("/")[-2:-1] == ["__pycache__"]
