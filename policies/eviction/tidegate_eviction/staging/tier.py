"""The bounded folder near the server: what is staged there, whole or not to be seen.

    <folder>/models/<model>           a link, the server's repository: to what is staged, or past it to the source
            /files/<model>/<stamp>/   what is staged of a model, whole: it came by one rename, and never changes
                          /<stamp>.synced   beside it, once all of it is on the disk
            /empty/                   where the link of a resident model leads whose files had to go
            /partial/                 what is being copied, linked or deleted; nothing there outlives a start
            /boot                     which start of the machine wrote here last

Whoever is killed leaves these names right at every instant. A machine that stops may leave files without their content
which were not on the disk yet: so after another boot only what was synced counts.
"""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Final

from tidegate_contracts import eviction_process

from ..serving.files import write_whole
from .sources import Contents

MODELS: Final = Path(eviction_process.STAGED_REPOSITORY).name
EMPTY: Final = Path("..", "empty")  # As a link finds it.
BLOCK: Final = 4096  # Bytes: file systems and Kubernetes count files in whole blocks, and each folder as one.
_SYNCED: Final = ".synced"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
Key = tuple[str, str]
"""A model, and the stamp of what is staged of it."""


def disk_bytes(contents: Contents) -> int:
    """Return what the copy of a model takes."""
    listing = contents.listing
    return BLOCK * (2 + len(listing.folders) + sum(-(-file.size // BLOCK) for file in listing.files))


class Tier:
    """Everything in the folder; what blocks, and what it holds. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staged: dict[Key, int] = {}  # Bytes that each takes.
        self.links: dict[str, str] = {}  # The stamp of what the server finds of a model, if that is staged.
        self._names = Lock()  # Held while what a model has staged is renamed, and its link with it.

    def open(self) -> None:
        """Make the folder what it is to be, and find what a predecessor staged."""
        self._make()
        shutil.rmtree(self.folder / "partial")
        self._make()
        boot, seen = _BOOT.read_bytes(), self.folder / "boot"
        is_same_boot = seen.exists() and seen.read_bytes() == boot
        self.staged.clear()
        self.links.clear()
        for model in list(os.scandir(self.folder / "files")):
            for item in list(os.scandir(model.path)):
                if item.name.endswith(_SYNCED):
                    if not Path(item.path.removesuffix(_SYNCED)).is_dir():
                        os.unlink(item.path)
                elif is_same_boot or os.path.exists(item.path + _SYNCED):
                    self.staged[model.name, item.name] = _taken(item.path)
                else:
                    self.discard((model.name, item.name))
        write_whole(seen, boot)
        for link in list(os.scandir(self.folder / MODELS)):
            leads_to = Path(os.readlink(link.path))
            if not os.path.exists(link.path):
                os.unlink(link.path)
            elif leads_to.parent == Path("..", "files", link.name):
                self.links[link.name] = leads_to.name

    def is_whole(self, contents: Contents) -> bool:
        """Tell whether a model is staged with this content, and every file is there in its size."""
        key = contents.model, contents.stamp
        if key not in self.staged:
            return False
        folder = self._place(key)
        try:
            return all(os.stat(folder / file.path).st_size == file.size for file in contents.listing.files) and all(
                os.path.isdir(folder / each) for each in contents.listing.folders
            )
        except OSError:
            return False

    def partial(self) -> Path:
        """Return a new empty folder to copy into."""
        self._make()
        folder = self._new()
        folder.mkdir()
        return folder

    def take_in(self, partial: Path, key: Key) -> None:
        """Make what was copied whole the staged content of a model."""
        place = self._place(key)
        if place.exists():
            self.discard(key)
        with self._names:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial.rename(place)
            self.staged[key] = _taken(place)

    def sync(self, key: Key) -> None:
        """Have it on the disk; it counts after another start of the machine, too, from then on."""
        place = self._place(key)
        opened = os.open(place, os.O_RDONLY)
        try:
            for where, _, names in os.walk(place):
                for path in (where, *(os.path.join(where, name) for name in names)):
                    _sync(Path(path))
            with self._names:
                if os.path.samestat(os.fstat(opened), os.stat(place)):  # else another copy has taken its place
                    place.with_name(place.name + _SYNCED).touch()
        finally:
            os.close(opened)
        for folder in (place.parent, place.parent.parent):
            _sync(folder)

    def link(self, model: str, target: Path | Key) -> Key | None:
        """Have the server find a model at what is staged of it, or at another folder; return where it did before, if
        that was staged."""
        self._make()
        with self._names:
            before = self.links.get(model)
            if isinstance(target, tuple) and not self._place(target).is_dir():
                raise FileNotFoundError(errno.ENOENT, "what was staged is gone", str(self._place(target)))
            self._point(model, target)
        return None if before is None else (model, before)

    def unlink(self, model: str) -> None:
        """Have the server find no model of this name."""
        with self._names:
            self._point(model, None)

    def discard(self, key: Key, instead: Path | None = None) -> None:
        """Delete what is staged. A link that leads there goes first, or leads to another folder from then on. It counts
        as staged until all of it is gone."""
        model, stamp = key
        self._make()
        place, gone = self._place(key), self._new()
        with self._names:
            if self.links.get(model) == stamp:
                self._point(model, instead)
            place.with_name(stamp + _SYNCED).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                place.rename(gone)
            with suppress(OSError):  # others of the model are staged
                place.parent.rmdir()
        shutil.rmtree(gone, ignore_errors=True)
        self.staged.pop(key, None)

    def forget(self, partial: Path) -> None:
        """Delete what was copied in part."""
        shutil.rmtree(partial, ignore_errors=True)

    def _point(self, model: str, target: Path | Key | None) -> None:
        link = self.folder / MODELS / model
        if target is None:
            link.unlink(missing_ok=True)
        else:
            new = self._new()
            new.symlink_to(Path("..", "files", *target) if isinstance(target, tuple) else target)
            new.replace(link)
        self.links.pop(model, None)
        if isinstance(target, tuple):
            self.links[model] = target[1]

    def _make(self) -> None:
        for name in (MODELS, "files", "empty", "partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def _new(self) -> Path:
        return self.folder / "partial" / token_hex(8)

    def _place(self, key: Key) -> Path:
        return self.folder.joinpath("files", *key)


def _taken(folder: str | Path) -> int:
    blocks = 1  # of the folder around it
    for where, _, names in os.walk(folder):
        blocks += 1 + sum(-(-os.stat(os.path.join(where, name)).st_size // BLOCK) for name in names)
    return BLOCK * blocks


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
