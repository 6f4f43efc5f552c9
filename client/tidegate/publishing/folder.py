"""A model repository in a folder: of a local disk, of NFS, of EFS.

Beside it, on the same file system and so never below what Triton reads, lies `.tidegate/<its name>/<model>/` with the
model's lock, with what is staged, and with what is being deleted; and the model itself, while it is put away.
"""

import errno
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from tidegate_contracts.manifest import BESIDE, ENTRY_VERSION, Manifest

from ..errors import IntegrityError, NotFoundError, UsageError
from ..failures import explained
from ..hashing import chunks_of, hashed, opened
from ..parallel import Progress
from ..repository import Configs, StoredFile
from . import staged as staging
from . import steps
from .lease import FolderLease
from .repository import STATE, PublishedRepository, checked_model, checked_path, version_number

_AWAY = "away"  # The folder of a model that Triton must not find.


class FolderRepository(PublishedRepository):
    """See `Repository`, which this is one of."""

    room = "make room (tidegate prune)"

    def __init__(self, root: Path, configs: Configs) -> None:
        """Open the repository in a folder that is there already; raises NotFoundError."""
        super().__init__(configs)
        if not root.is_dir():
            do = "mount the dataset, or make the folder if the repository is to begin"
            raise NotFoundError("there is no such folder for a model repository", where=root, do=do)
        self._root = root.resolve()

    @property
    def where(self) -> str:
        """Folder of the repository."""
        return str(self._root)

    def models(self) -> list[str]:
        """Return the names of its models."""
        with explained(self.where), os.scandir(self._root) as scan:
            away = Path(self._root.parent, STATE, self._root.name).glob(f"*/{_AWAY}")
            return sorted({*(item.name for item in scan if item.is_dir()), *(each.parent.name for each in away)})

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, ascending."""
        with explained(self.where):
            return sorted(_versions(self._place(model)))

    def files(self, model: str) -> list[StoredFile]:
        """Return every file of a model, in the order of their paths."""
        with explained(self.where):
            folder = self._place(model)
            if not folder.is_dir():
                return []
            return sorted(StoredFile(path, status.st_size) for path, status in staging.walk(folder))

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        folder = self._place(model)
        file = folder / checked_path(path)
        with explained(self.where):
            steps.refuse_links(folder, file.parent)
            try:
                with opened(file) as descriptor:
                    yield from chunks_of(descriptor)
            except FileNotFoundError:
                raise NotFoundError(f"model {model} has no file {path}", where=self.where) from None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    what = f"{path} of model {model} is a link or a special file"
                    raise IntegrityError(what, where=self.where) from None
                raise

    def config_age(self, model: str) -> float:
        """Return the seconds since the configuration was written."""
        with explained(self.where):
            try:
                return time.time() - (self._place(model) / self.configs.CONFIG).stat().st_mtime
            except FileNotFoundError:
                raise NotFoundError(f"model {model} has no file {self.configs.CONFIG}", where=self.where) from None

    @contextmanager
    def lock(self, model: str, who: str) -> Iterator[None]:
        """Be the only one to change a model; what a killed run left to be deleted is deleted."""
        with super().lock(model, who):
            with explained(self.where):
                # The folder stays: on a full volume none could be made, and nothing be deleted.
                steps.make_folder(self._state(model, "trash"))
                with suppress(OSError, RecursionError):  # what is only to be deleted holds nothing up
                    self._empty_trash(model)
            yield

    def put_away(self, model: str, config: str) -> None:  # noqa: ARG002
        """Have Triton find a model no more: a folder of which it knows no state might be one that it cannot load."""
        with explained(self.where):
            self._check_lock(model)
            if (folder := self._root / checked_model(model)).is_dir():
                if (away := self._state(model, _AWAY)).is_dir():  # A client that knows of none made the folder anew.
                    steps.rename(away, self._state(model, "trash") / token_hex(8))
                steps.rename(folder, away)

    def _write_config(self, model: str, place: Path, config: str) -> None:
        if place == self._state(model, _AWAY):
            # First, for who is killed leaves a configuration that serves nothing, and the next run writes it.
            place = self._root / model
            steps.rename(self._state(model, _AWAY), place)
        super()._write_config(model, place, config)

    def _lease(self, model: str, who: str) -> FolderLease:
        state = self._state(model)
        steps.make_folder(state)
        if state.stat().st_dev != self._root.stat().st_dev:
            what = "its parent folder is on another file system, so nothing can be published whole"
            do = "give the repository a folder of its own below the dataset's root (`path` in the definition)"
            raise UsageError(what, where=self.where, do=do)
        return FolderLease(model, state, who)

    def _staging(self, model: str, number: int) -> Path:
        self._unfold(model)
        return self._state(model, "staged", str(number))

    def _bring(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None
    ) -> bool:
        folder = self._place(model)
        if (folder / str(number)).is_dir():
            self._check_same(model, number, manifest, progress)
            return False
        staging.verify(staged, manifest, progress)
        version = staging.fold(staged, manifest, self._newest(model))
        self._check_lock(model)
        if folder.is_dir():
            if self.config(model) is None:
                # Else Triton might take the version for whatever it likes before its configuration is there.
                self._have(model, folder, self.configs.CONFIG, self.configs.closed_config(config).encode())
            steps.rename(version, folder / str(number))
        else:
            new = self._state(model, "new")
            steps.remove(new)
            steps.make_folder(new)
            steps.rename(version, new / str(number))
            self._write_config(model, new, config)
            self._check_lock(model)
            steps.rename(new, folder)
        return True

    def _remove_version(self, model: str, number: int) -> None:
        if (folder := self._place(model) / str(number)).is_dir():
            steps.rename(folder, self._state(model, "trash") / token_hex(8))
            self._empty_trash(model)

    def _place(self, model: str) -> Path:
        folder = self._root / checked_model(model)
        if folder.is_symlink():
            raise IntegrityError(f"the folder of model {model} is a link", where=self.where, do="put a folder there")
        away = self._state(model, _AWAY)
        return away if away.is_dir() and not folder.is_dir() else folder

    def _entries(self, place: Path) -> Mapping[int, Sequence[str]]:
        found = {}
        for number, version in _versions(place).items():
            steps.refuse_links(place, version / BESIDE)
            there = (version / BESIDE).is_dir()
            found[number] = [path for path, _ in staging.walk(version / BESIDE)] if there else []
        return found

    def _digest(self, place: Path, path: str) -> str | None:
        try:
            return hashed(place / path)[1]
        except OSError:
            return None  # it is not there, or is none: it is written anew, which says what is wrong

    def _is_program(self, place: Path, path: str) -> bool:
        return os.access(place / path, os.X_OK)

    def _remove(self, place: Path, path: str) -> None:
        if (place / path).is_file():
            steps.refuse_links(place, (place / path).parent)
            steps.remove(place / path)

    def _write(self, model: str, place: Path, path: str, data: bytes | str) -> None:
        target, partial = place / path, self._state(model) / "partial"
        steps.refuse_links(self._root.parent, target.parent)
        steps.write(partial, place / data if isinstance(data, str) else data)
        steps.make_folder(target.parent)
        staging.be_newer(partial, target.stat().st_mtime_ns if target.exists() else 0)
        self._check_lock(model)
        steps.rename(partial, target)

    def _state(self, model: str, *below: str) -> Path:
        """Return a folder of what stands beside the repository; raises IntegrityError where a link leads there."""
        folder = Path(self._root.parent, STATE, self._root.name, checked_model(model), *below)
        steps.refuse_links(self._root.parent, folder)
        return folder

    def _newest(self, model: str) -> int:
        """Return the newest time (nanoseconds) of anything that Triton may have seen of a model; 0 for a new one."""
        folder = self._place(model)
        times = [folder.stat().st_mtime_ns] if folder.is_dir() else [0]
        for path, _, files in os.walk(folder):
            times += [os.lstat(Path(path, name)).st_mtime_ns for name in (*files, ".")]
        return max(times)

    def _unfold(self, model: str) -> None:
        new, staged = self._state(model, "new"), self._state(model, "staged")
        if new.is_dir():
            for number, item in _versions(new).items():
                back = staged / str(number) / ENTRY_VERSION
                steps.make_folder(back.parent)
                steps.rename(item, back)
            steps.remove(new)
        if staged.is_dir():
            for folder in staged.iterdir():
                staging.unfold(folder)

    def _empty_trash(self, model: str) -> None:
        for item in self._state(model, "trash").iterdir():
            steps.remove(item)


def _versions(folder: Path) -> dict[int, Path]:
    items = folder.iterdir() if folder.is_dir() else ()
    return {number: item for item in items if (number := version_number(item.name))}
