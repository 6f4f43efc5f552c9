"""A model repository in a folder: of a local disk, of NFS, of EFS.

Beside it, on the same file system and so never below what Triton reads, lies `.tidegate/<its name>/<model>/` with the
model's lock, with what is staged, and with what is being deleted.
"""

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from tidegate_contracts.manifest import ENTRY_VERSION, Manifest

from ..errors import IntegrityError, NotFoundError, UnfinishedError, UsageError
from ..failures import explained
from ..hashing import chunks_of
from . import staged as staging
from . import steps
from .compare import differences
from .config import CONFIG, ENTRY, closed_config, read_published
from .lease import FolderLease
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
_CHUNK = 1 << 20


class FolderRepository(Repository):
    """See `Repository`, which this is one of."""

    def __init__(self, root: Path) -> None:
        """Open the repository in a folder that is there already; raises NotFoundError."""
        if not root.is_dir():
            do = "mount the dataset, or make the folder if the repository is to begin"
            raise NotFoundError("there is no such folder for a model repository", where=str(root), do=do)
        self._root = root.resolve()
        self._leases: dict[str, FolderLease] = {}

    @property
    def where(self) -> str:
        """Its folder."""
        return str(self._root)

    def models(self) -> list[str]:
        """Return the names of its models."""
        with explained(self.where), os.scandir(self._root) as scan:
            return sorted(item.name for item in scan if item.is_dir())

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, ascending."""
        with explained(self.where):
            folder = self._folder(model)
            if not folder.is_dir():
                return []
            return sorted(number for item in folder.iterdir() if (number := version_number(item.name)))

    def files(self, model: str) -> list[StoredFile]:
        """Return every file of a model, in the order of their paths."""
        with explained(self.where):
            folder = self._folder(model)
            if not folder.is_dir():
                return []
            return sorted(StoredFile(path, status.st_size) for path, status in staging.walk(folder))

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        folder = self._folder(model)
        file = folder / checked_path(path)
        with explained(self.where):
            steps.refuse_links(folder, file.parent)
            special = IntegrityError(f"{path} of model {model} is a link or a special file", where=self.where)
            try:
                descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                raise NotFoundError(f"model {model} has no file {path}", where=self.where) from None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise special from None
                raise
            with open(descriptor, "rb", buffering=0):
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise special
                yield from chunks_of(descriptor)

    def config_age(self, model: str) -> float:
        """Return the seconds since config.pbtxt was written."""
        with explained(self.where):
            try:
                return time.time() - (self._folder(model) / CONFIG).stat().st_mtime
            except FileNotFoundError:
                raise NotFoundError(f"model {model} has no file {CONFIG}", where=self.where) from None

    @contextmanager
    def lock(self, model: str, who: str) -> Iterator[None]:
        """Be the only one to change a model; what a killed run left to be deleted is deleted."""
        with explained(self.where):
            state = self._state(model)
            steps.make_folder(state)
            if state.stat().st_dev != self._root.stat().st_dev:
                what = "its parent folder is on another file system, so nothing can be published whole"
                do = "give the repository a folder of its own below the dataset's root (`path` in the definition)"
                raise UsageError(what, where=self.where, do=do)
            lease = FolderLease(model, state, who)
        with ExitStack() as held:
            with explained(self.where):
                held.enter_context(lease.held())
                # The folder stays: on a full volume none could be made, and nothing be deleted.
                steps.make_folder(self._state(model, "trash"))
                with suppress(OSError, RecursionError):  # nobody waits for what is only to be deleted
                    self._empty_trash(model)
            self._leases[model] = lease
            try:
                yield
            finally:
                del self._leases[model]

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        """Return the folder to fetch the entry of a version into, with what a killed run fetched."""
        with explained(self.where):
            self._check_lock(model)
            self._unfold(model)
            folder = self._staged(model, number)
            steps.make_folder(folder)
            there = sum(status.st_size for _, status in staging.walk(folder))
            if (missing := size - there) > (free := shutil.disk_usage(folder).free):
                what = f"version {number} of model {model} needs {missing} bytes more, and {free} are free"
                do = "make room (tidegate prune), then run the same command again: it goes on from here"
                raise UnfinishedError(what, where=self.where, do=do)
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
        """Bring a version in by one rename, and then its configuration; a new model comes with both by one rename."""
        if manifest.model != model:
            raise IntegrityError(f"the manifest is that of model {manifest.model}, not of {model}", where=self.where)
        with explained(self.where):
            self._check_lock(model)
            folder = self._folder(model)
            comes = not (folder / str(number)).is_dir()
            if not comes:
                self._check_same(model, number, manifest, progress)
            else:
                staging.verify(staged, manifest, progress)
                version = staging.fold(staged, self._newest(model))
                self._check_lock(model)
                if folder.is_dir():
                    if self.config(model) is None:
                        # Else Triton might take the version for whatever it likes before its configuration is there.
                        self._put(model, closed_config(config).encode(), folder / CONFIG)
                    steps.rename(version, folder / str(number))
                else:
                    self._bring_model(model, number, version, config)
            self.write_config(model, config)
            steps.remove(staged)
            return comes

    def write_config(self, model: str, config: str) -> None:
        """Bring in a configuration: the owner's files beside the versions first, and itself last."""
        with explained(self.where):
            self._check_lock(model)
            self._write_config(model, self._folder(model), config)

    def remove_version(self, model: str, number: int) -> None:
        """Remove a version: out by one rename, then deleted."""
        with explained(self.where):
            self._check_lock(model)
            check_removable(self, model, number)
            self._throw_away(model, self._folder(model) / str(number))

    def withdraw(self, model: str) -> None:
        """Have Triton serve nothing of a model, and leave its files."""
        with explained(self.where):
            self._check_lock(model)
            if (config := self.config(model)) is not None:
                self._put(model, closed_config(config).encode(), self._folder(model) / CONFIG)

    def remove_model(self, model: str) -> None:
        """Remove a model: out by one rename, then deleted."""
        with explained(self.where):
            self._check_lock(model)
            self._throw_away(model, self._folder(model))

    def _folder(self, model: str) -> Path:
        folder = self._root / checked_model(model)
        if folder.is_symlink():
            raise IntegrityError(f"the folder of model {model} is a link", where=self.where, do="put a folder there")
        return folder

    def _state(self, model: str, *below: str) -> Path:
        """Return a folder of what stands beside the repository; raises IntegrityError where a link leads there."""
        folder = Path(self._root.parent, STATE, self._root.name, checked_model(model), *below)
        steps.refuse_links(self._root.parent, folder)
        return folder

    def _staged(self, model: str, number: int) -> Path:
        return self._state(model, "staged", str(number))

    def _check_lock(self, model: str) -> None:
        if (lease := self._leases.get(model)) is None:
            raise RuntimeError(f"whoever changes model {model} holds its lock")
        lease.check()

    def _check_same(self, model: str, number: int, manifest: Manifest, progress: Progress | None) -> None:
        if found := differences(self, model, number, manifest, progress):
            what = f"version {number} of model {model} is there with other content: {'; '.join(found)}"
            do = "it is never overwritten: find out who changed it, and have an admin remove it (tidegate prune)"
            raise IntegrityError(what, where=self.where, do=do)

    def _newest(self, model: str) -> int:
        """Return the newest time (nanoseconds) of anything that Triton may have seen of a model; 0 for a new one."""
        folder = self._folder(model)
        times = [folder.stat().st_mtime_ns] if folder.is_dir() else [0]
        for path, _, files in os.walk(folder):
            times += [os.lstat(Path(path, name)).st_mtime_ns for name in (*files, ".")]
        return max(times)

    def _bring_model(self, model: str, number: int, version: Path, config: str) -> None:
        new = self._state(model, "new")
        steps.remove(new)
        steps.make_folder(new)
        steps.rename(version, new / str(number))
        self._write_config(model, new, config)
        self._check_lock(model)
        steps.rename(new, self._folder(model))

    def _unfold(self, model: str) -> None:
        """Give all that killed runs have staged the shape of entries again."""
        new, staged = self._state(model, "new"), self._state(model, "staged")
        if new.is_dir():
            for item in new.iterdir():
                if (number := version_number(item.name)) is not None:
                    back = self._staged(model, number) / ENTRY_VERSION
                    steps.make_folder(back.parent)
                    steps.rename(item, back)
            steps.remove(new)
        if staged.is_dir():
            for folder in staged.iterdir():
                staging.unfold(folder)

    def _write_config(self, model: str, folder: Path, config: str) -> None:
        published = read_published(config)
        for number in filter(None, (published.owner, *published.served)):
            if not (folder / str(number)).is_dir():
                what = f"version {number} of model {model}, which its configuration needs, is not published"
                raise NotFoundError(what, where=self.where)
        own = folder / str(published.owner) / ENTRY
        steps.refuse_links(folder, own)
        beside = sorted(path for path, _ in staging.walk(own)) if own.is_dir() else []
        for path in beside:
            if path != CONFIG:
                self._put(model, own / path, folder / path)
        self._put(model, config.encode(), folder / CONFIG)
        self._remove_others(folder, {CONFIG, *beside})

    def _put(self, model: str, data: Path | bytes, target: Path) -> None:
        """Have a file whole under its name; nothing where it is so already."""
        if target.is_file() and not target.is_symlink() and _same(data, target):
            return
        steps.refuse_links(self._root.parent, target.parent)
        partial = self._state(model) / "partial"
        steps.write(partial, data)
        steps.make_folder(target.parent)
        staging.be_newer(partial, target.stat().st_mtime_ns if target.exists() else 0)
        self._check_lock(model)
        steps.rename(partial, target)

    def _remove_others(self, folder: Path, needed: set[str]) -> None:
        """Delete what former configurations needed beside the versions: it is in the versions' own folders too."""
        for version in folder.iterdir():
            if version_number(version.name) and (version / ENTRY).is_dir():
                steps.refuse_links(folder, version / ENTRY)
                for path, _ in staging.walk(version / ENTRY):
                    if path not in needed and (folder / path).is_file():
                        steps.refuse_links(folder, (folder / path).parent)
                        steps.remove(folder / path)

    def _throw_away(self, model: str, path: Path) -> None:
        if path.is_dir():
            steps.rename(path, self._state(model, "trash") / token_hex(8))
            self._empty_trash(model)

    def _empty_trash(self, model: str) -> None:
        for item in self._state(model, "trash").iterdir():
            steps.remove(item)


def _same(data: Path | bytes, file: Path) -> bool:
    if isinstance(data, bytes):
        return file.stat().st_size == len(data) and file.read_bytes() == data
    if file.stat().st_size != data.stat().st_size:
        return False
    with data.open("rb") as one, file.open("rb") as other:
        while chunk := one.read(_CHUNK):
            if chunk != other.read(len(chunk)):
                return False
    return True
