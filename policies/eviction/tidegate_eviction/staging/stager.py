"""Copies of models in a bounded directory near the server. The least recently read copies are removed first.

    <folder>/models/<model>           a link in the server's repository, to the copy or to the source
            /files/<model>/<stamp>/   a complete copy, created by one rename and never changed
            /empty/                   the target of links whose copy is deleted and whose source is a bucket
            /partial/                 copies and deletions in progress, emptied at each start
            /boot                     the boot ID of the machine at the last start

These names are valid at every moment, even if the process is killed. After a crash of the machine, files may lack their
content, so all copies are removed after another boot.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from threading import Event
from time import monotonic
from typing import Final, TypeVar

from tidegate_contracts import eviction_process
from tidegate_contracts.eviction import Staging

from ..files import write_whole
from .copying import ChangedError, StagingError, copy
from .sources import Contents, RepositoryError

MODELS: Final = Path(eviction_process.STAGED_REPOSITORY).name
BLOCK: Final = 4096  # File systems and Kubernetes count whole blocks, and one for each directory.
TRIES = 3  # Attempts to copy a model that changes meanwhile.
_POLL_SECONDS = 0.2  # Between two attempts to get space.
_THREADS = 16
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_IN_USE = "loads in progress use the whole staging directory"
Key = tuple[str, str]
"""A model and the stamp of its copy."""
Result = TypeVar("Result")
log = logging.getLogger(__name__)


@dataclass
class StagingCounts:
    """Counters since the start, and the size of the copies."""

    found: int = 0  # Loads whose files were cached.
    copied: int = 0  # Loads that waited for copies.
    passed: int = 0  # Loads directly from the source, because the files did not fit or could not be written.
    bytes: int = 0  # Copied bytes.
    used_bytes: int = 0
    size_bytes: int = 0


def disk_bytes(contents: Contents) -> int:
    """Return the bytes of a model's copy."""
    listing = contents.listing
    return BLOCK * (2 + len(listing.folders) + sum(-(-file.size // BLOCK) for file in listing.files))


@dataclass(eq=False)
class Stager:
    """Stages the models of one pool. Its state belongs to the event loop. Blocking work runs on threads."""

    settings: Staging
    contents: Callable[[str], Contents | None]
    """Returns the files that a load of a model reads now. Blocks, raises RepositoryError and OSError."""
    repository: Path | None
    """The repository if it is a directory, which the server can read, too. None: a bucket."""
    counts: StagingCounts = field(default_factory=StagingCounts)
    room_seconds: float = 600.0  # The longest wait for space of other loads, if the server cannot read the source.

    def __post_init__(self) -> None:
        self.folder = Path(self.settings.folder)
        self.copies: dict[Key, int] = {}
        """The bytes of each copy, including those in progress. The least recently read comes first."""
        self._copying: dict[Key, asyncio.Task[None]] = {}
        self._loads: dict[int, tuple[Key, ...]] = {}  # The copies that loads in progress read, by number. They stay.
        self._doubted: set[Key] = set()  # Copies that failed loads have read.
        self._room = asyncio.Lock()
        self._stop = Event()
        self._threads = ThreadPoolExecutor(_THREADS, "staging")

    @property
    def used_bytes(self) -> int:
        return sum(self.copies.values())

    def snapshot(self) -> StagingCounts:
        return replace(self.counts, used_bytes=self.used_bytes, size_bytes=self.settings.size_bytes)

    def open(self) -> None:
        """Create the directories, and find the copies of an earlier start. Blocks, raises OSError."""
        shutil.rmtree(self.folder / "partial", ignore_errors=True)
        self._make_folders()
        boot, known = _BOOT.read_bytes(), self.folder / "boot"
        if not known.exists() or known.read_bytes() != boot:
            shutil.rmtree(self.folder / "files")
            self._make_folders()
            write_whole(known, boot)
        places = sorted((self.folder / "files").glob("*/*"), key=lambda place: place.stat().st_mtime)
        self.copies = {(place.parent.name, place.name): _taken(place) for place in places}
        for link in list((self.folder / MODELS).iterdir()):
            if not link.exists():
                link.unlink()

    async def close(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._copying.values(), return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def ensure(self, number: int, model: str) -> float:
        """Make the present files of a model and its parts available until this load is `done`. Return the seconds of
        copying. Raises StagingError."""
        began = monotonic()
        for tries_left in reversed(range(TRIES)):
            try:
                wanted = await self._on_thread(self._look, model)
                was_copied = await self._bring(number, model, wanted, began + self.room_seconds)
                return monotonic() - began if was_copied else 0.0
            except ChangedError:
                if not tries_left:
                    raise
            except (RepositoryError, OSError) as error:
                raise StagingError(f"model {model} cannot be staged: {error}") from error
        raise AssertionError

    def done(self, number: int, *, failed: bool = False) -> None:
        """Note the end of a load: its copies may be removed. The copies that a failed load has read are made again."""
        keys = self._loads.pop(number, ())
        if failed:
            self._doubted.update(key for key in keys if key in self.copies)

    def forget_loads(self) -> None:
        """Forget all loads, because the server has ended."""
        self._loads.clear()

    def _look(self, model: str) -> list[Contents]:
        found = self.contents(model)
        return [] if found is None else [found, *filter(None, map(self.contents, found.parts))]

    async def _bring(self, number: int, model: str, wanted: Sequence[Contents], until: float) -> bool:
        """Make copies or sources available. Return whether they were copied for this load."""
        linked = [path for each in wanted for path in each.listing.linked]
        together, size = sum(map(disk_bytes, wanted)), self.settings.size_bytes
        why, is_copied = "", False
        if linked:
            why = f"{linked[0]} is a link to a directory"
        elif together > size:
            why = f"its files need {together} bytes, but the staging directory has {size}"
        else:
            while not (has_room := await self._make_room(number, wanted)):
                if self.repository is not None or monotonic() >= until:
                    break
                await asyncio.sleep(_POLL_SECONDS)
            why = "" if has_room else _IN_USE
        copying = [task for each in wanted if not why and (task := self._copying.get(each.key))]
        if copying:
            is_copied = True
            ended = await asyncio.gather(*map(asyncio.shield, copying), return_exceptions=True)
            for error in (each for each in ended if isinstance(each, BaseException)):
                if not isinstance(error, OSError):
                    raise error
                why = str(error)
        if why and self.repository is None:
            raise StagingError(f"model {model} cannot be staged: {why}")
        await self._link(model, wanted, is_staged=not why)
        if why:
            self._loads.pop(number, None)
            self.counts.passed += 1
            log.warning("%s is loaded directly from the repository: %s", model, why)
        elif is_copied:
            self.counts.copied += 1
        else:
            self.counts.found += 1
        return is_copied and not why

    async def _make_room(self, number: int, wanted: Sequence[Contents]) -> bool:
        """Start the missing copies, and keep all of them for this load. Return False if other loads use the space."""
        async with self._room:
            self._loads.pop(number, None)
            for each in wanted:
                if self._is_free(each.key) and not await self._on_thread(self._is_whole, each):
                    log.warning("the copy of %s is incomplete, so it is copied again", each.model)
                    await self._discard(each.key)
            keys = tuple(each.key for each in wanted)
            new = [each for each in wanted if each.key not in self.copies]
            lacking = self.used_bytes + sum(map(disk_bytes, new)) - self.settings.size_bytes
            free = [key for key in self.copies if key not in keys and self._is_free(key)]
            if lacking > sum(self.copies[key] for key in free):
                return False
            for key in free:
                if lacking <= 0:
                    break
                lacking -= self.copies[key]
                removed = {"model": key[0], "bytes": self.copies[key]}
                log.info("the copy of %s is removed", key[0], extra={"data": removed})
                await self._discard(key)
            self._loads[number] = keys
            for each in new:
                self.copies[each.key] = disk_bytes(each)
                task = self._copying[each.key] = asyncio.create_task(self._copy(each))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())  # Retrieves the exception.
            for key in keys:
                self.copies[key] = self.copies.pop(key)  # Read last.
        return True

    def _is_free(self, key: Key) -> bool:
        in_use = any(key in keys for keys in self._loads.values())
        return key in self.copies and key not in self._copying and not in_use

    async def _copy(self, contents: Contents) -> None:
        model = contents.model

        def run() -> None:
            self._make_folders()
            partial = self._new()
            try:
                partial.mkdir()
                copy(contents, partial, self._stop)
                if (again := self.contents(model)) is None or again.key != contents.key:
                    raise ChangedError(f"model {model} changed during the copy")
                place = self._place(contents.key)
                place.parent.mkdir(exist_ok=True)
                partial.rename(place)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

        try:
            await self._on_thread(run)
            self.counts.bytes += sum(file.size for file in contents.listing.files)
        except BaseException:
            del self.copies[contents.key]
            raise
        finally:
            del self._copying[contents.key]

    async def _link(self, model: str, wanted: Sequence[Contents], *, is_staged: bool) -> None:
        """Link models to their copies or sources, and remove copies of earlier contents."""
        async with self._room:
            if not wanted:
                await self._on_thread(self._point, model, None)
            for each in wanted:
                source = Path(each.source.where)
                target = Path("..", "files", *each.key) if is_staged else source
                await self._on_thread(self._point, each.model, target)
            current = {each.model: each.key for each in wanted}
            for key in [key for key in self.copies if current.get(key[0], key) != key and self._is_free(key)]:
                await self._discard(key)

    async def _discard(self, key: Key) -> None:
        await self._on_thread(self._delete, key)
        self.copies.pop(key, None)
        self._doubted.discard(key)

    def _delete(self, key: Key) -> None:
        """Delete a copy. The server still finds a directory where it has read the copy."""
        self._make_folders()
        place, gone, link = self._place(key), self._new(), self.folder / MODELS / key[0]
        if link.is_symlink() and link.readlink() == Path("..", "files", *key):
            self._point(key[0], Path("..", "empty") if self.repository is None else self.repository / key[0])
        with suppress(FileNotFoundError):
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _is_whole(self, contents: Contents) -> bool:
        """Return whether a copy has every file in its size, and no failed load has read it."""
        place = self._place(contents.key)
        if contents.key in self._doubted:
            return False
        try:
            return all((place / file.path).stat().st_size == file.size for file in contents.listing.files) and all(
                (place / folder).is_dir() for folder in contents.listing.folders
            )
        except OSError:
            return False

    def _point(self, model: str, target: Path | None) -> None:
        self._make_folders()
        link = self.folder / MODELS / model
        if target is None:
            link.unlink(missing_ok=True)
        else:
            new = self._new()
            new.symlink_to(target)
            new.replace(link)

    def _make_folders(self) -> None:
        for name in (MODELS, "files", "empty", "partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def _new(self) -> Path:
        return self.folder / "partial" / token_hex(8)

    def _place(self, key: Key) -> Path:
        return self.folder.joinpath("files", *key)

    async def _on_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def _taken(folder: Path) -> int:
    blocks = 1  # The directory itself.
    for where, _, names in os.walk(folder):
        blocks += 1 + sum(-(-os.stat(os.path.join(where, name)).st_size // BLOCK) for name in names)
    return BLOCK * blocks
