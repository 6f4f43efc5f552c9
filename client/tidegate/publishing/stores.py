"""Where a repository's files lie: in a folder, or in an object store. Paths begin with the repository's own folder.

What is locked and staged lies next to that folder, in `.tidegate/`, and so never below what servers read.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from tidegate_contracts.object_url import FORMS, open_store, parsed

from ..errors import IntegrityError, NotFoundError, UsageError
from ..failures import explained, of_store
from ..hashing import below, chunks_of, opened
from ..parallel import TRANSFERS, Progress, in_parallel
from .steps import step

STATE: Final = ".tidegate"
_PART: Final = 8 << 20
_RETRY: Final[Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}
"""Each request: a lease must not wait for longer than it lasts."""


class TakenError(Exception):
    """A file that was to be created is there already."""


class FolderStore:
    """A folder of a local disk, of NFS, of EFS; others may write the volume, so that no link is followed.

    Files and versions come by one rename from `.tidegate/`, on the same file system: an NFS client never sees a half.
    Every method may raise TidegateError; IntegrityError for links and special files.
    """

    when_full = "make room (tidegate prune)"  # What to do if there is no room to stage a version.
    copies = False  # Whether `bring` sends files elsewhere, so that they are read back.

    def __init__(self, folder: Path) -> None:
        """Open a folder that is there; raises NotFoundError."""
        if not folder.is_dir():
            do = "mount the dataset, or make the folder if the repository is to begin"
            raise NotFoundError("there is no such folder for a model repository", where=folder, do=do)
        folder = folder.resolve()
        self.where, self.root, self._parent = str(folder), folder.name, folder.parent

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder."""
        with explained(self.where):
            folder = self._path(path)
            return sorted(item.name for item in os.scandir(folder) if item.is_dir()) if folder.is_dir() else []

    def names(self, path: str) -> list[str]:
        """Return the paths of the files below a folder, as they are at one moment."""
        with explained(self.where):
            folder = self._path(path)
            return [each for each, _ in below(folder)] if folder.is_dir() else []

    def sizes(self, path: str) -> dict[str, int]:
        """Return the files below a folder, by their paths in it, with their sizes in bytes."""
        with explained(self.where):
            folder = self._path(path)
            return {each: status.st_size for each, status in walk(folder)} if folder.is_dir() else {}

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file; raises NotFoundError."""
        with explained(self.where):
            file = self._path(path, itself=False)
            try:
                with opened(file) as descriptor:
                    yield from chunks_of(descriptor)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFoundError(f"there is no file {path}", where=self.where) from None
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise IntegrityError(f"{path} is a link or a special file", where=self.where) from None

    def modified(self, path: str) -> float:
        """Return when a file was written, by the store's own clock (Unix seconds); raises NotFoundError."""
        with explained(self.where):
            try:
                return self._path(path).stat().st_mtime
            except FileNotFoundError:
                raise NotFoundError(f"there is no file {path}", where=self.where) from None

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Write a file, whole or not at all; with `create`, raise TakenError if it is there."""
        with explained(self.where):
            target = self._path(path)
            if not create:
                self._put(path, target, lambda file: _write(file, data))
                return
            make_folder(target.parent)
            with step(f"create {target.name}"):
                try:
                    _write(target, data)
                except (FileExistsError, FileNotFoundError):  # not found: a successor has deleted it already
                    raise TakenError(path) from None
                except OSError:
                    target.unlink(missing_ok=True)
                    raise

    def copy(self, source: str, target: str) -> None:
        """Copy a file; a program stays one."""
        with explained(self.where):
            there = self._path(source)
            self._put(target, self._path(target), lambda file: _write(file, there))

    def _put(self, path: str, target: Path, write: Callable[[Path], None]) -> None:
        partial = self._scratch(path)
        make_folder(partial.parent)
        make_folder(target.parent)
        with step(f"write {target.name}"):
            write(partial)
        before = target.stat().st_mtime_ns if target.exists() else 0
        if partial.stat().st_mtime_ns <= before:  # Triton takes no notice of what is older than what it has seen.
            os.utime(partial, ns=(before + 10**9, before + 10**9))
        _rename(partial, target)

    def is_program(self, path: str) -> bool:
        """Whether a file may be run; object stores keep no file modes, and Triton sets that of its own copy."""
        return os.access(self._path(path), os.X_OK)

    def bring(self, version: str, files: Mapping[str, Path], progress: Progress) -> None:
        """Bring staged files into a version's new folder: have them on the disk, and rename that into its place."""
        with explained(self.where):
            target, new = self._path(version), self._scratch(version)
            if target.exists():
                return  # it is compared with its manifest then
            make_folder(new)

            def lay(item: tuple[str, Path]) -> None:
                path, file = item
                sync(file)
                progress(file.stat().st_size)
                make_folder((new / path).parent)
                with step(f"lay {path}"):
                    file.rename(new / path)

            in_parallel(lay, files.items())
            for folder, _, _ in os.walk(new):
                sync(Path(folder))
            make_folder(target.parent)
            _rename(new, target)

    def delete(self, path: str) -> None:
        """Delete a file; nothing if there is none."""
        with explained(self.where), step(f"delete {path.rpartition('/')[2]}"):
            self._path(path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        """Delete a folder, if there is one; it is renamed first, so that it goes at once for all readers."""
        with explained(self.where):
            if (folder := self._path(path)).is_dir():
                aside = self._scratch(path)
                make_folder(aside.parent)
                _rename(folder, aside)
                with step(f"delete {folder.name}"):
                    shutil.rmtree(aside)

    def staging(self, model: str, number: int) -> Path:
        """Return the folder in which a version is staged; it may not be there yet."""
        return self._path(f"{STATE}/{self.root}/{model}/staged/{number}")

    def clean(self, model: str) -> None:
        """Delete the scratch of earlier runs; raises UsageError where nothing could be renamed into the repository."""
        with explained(self.where):
            # The folder stays: on a full volume none could be made, and nothing be deleted.
            trash = self._scratch(f"{self.root}/{model}").parent
            make_folder(trash)
            if trash.stat().st_dev != os.stat(self.where).st_dev:
                what = "its parent folder is on another file system, so nothing can be published whole"
                do = "give the repository a folder below the dataset's root (`path` in the definition)"
                raise UsageError(what, where=self.where, do=do)
            for each in trash.iterdir():
                if each.is_dir() and not each.is_symlink():
                    with suppress(RecursionError):  # what others have laid there holds nothing up
                        shutil.rmtree(each, ignore_errors=True)
                else:
                    each.unlink(missing_ok=True)

    def _path(self, path: str, *, itself: bool = True) -> Path:
        """Return where a file or folder is; raises IntegrityError for a link on the way, or, with `itself`, there."""
        file = self._parent / path
        for each in ((file,) if itself else ()) + tuple(file.parents):
            if each == self._parent:
                break
            if each.is_symlink():
                do = "find out who laid it there, and take it away"
                raise IntegrityError("this is a symbolic link, which is not followed", where=each, do=do)
        return file

    def _scratch(self, path: str) -> Path:
        """Return a new path for what is half written, or to be deleted, of the model that a path is of."""
        steps = path.split("/")
        model = steps[2] if steps[0] == STATE else steps[1]
        return self._path(f"{STATE}/{self.root}/{model}/trash") / token_hex(8)


class ObjectStore:
    """The parent of a repository's folder in an object store.

    Credentials are those of the environment, as each cloud's own tools find them (for AWS: keys, IRSA, the instance's).
    """

    when_full = "make room, or name a larger disk in TIDEGATE_CACHE"
    copies = True

    def __init__(self, url: str) -> None:
        """Open it; raises UsageError for what is no URL of a repository."""
        self.where = url
        try:
            place = parsed(url)
        except ValueError:
            raise UsageError("that is no URL of a repository in an object store", do=f"write {FORMS}") from None
        if not place.folders:
            why = "locks lie next to it, and every folder in it is taken for a model"
            raise UsageError("the repository is a whole bucket", where=url, why=why, do=f"give it a folder: {FORMS}")
        *above, self.root = place.folders
        self._store = open_store(place, tuple(above), retry_config=_RETRY)

    def folders(self, path: str) -> list[str]:
        """See `FolderStore`."""
        with self._explained():
            found = self._store.list_with_delimiter(path)["common_prefixes"]
            return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def names(self, path: str) -> list[str]:
        """See `FolderStore`."""
        return list(self.sizes(path))

    def sizes(self, path: str) -> dict[str, int]:
        """See `FolderStore`."""
        with self._explained():
            pages = self._store.list(f"{path}/")
            return {each["path"].removeprefix(f"{path}/"): each["size"] for page in pages for each in page}

    def chunks(self, path: str) -> Iterator[bytes]:
        """See `FolderStore`."""
        with self._explained():
            for chunk in self._store.get(path).stream(min_chunk_size=_PART):
                yield bytes(chunk)

    def modified(self, path: str) -> float:
        """See `FolderStore`."""
        with self._explained():
            return float(self._store.head(path)["last_modified"].timestamp())

    def put(self, path: str, data: bytes | Path, *, create: bool = False) -> None:
        """See `FolderStore`; a large file goes in parts, of which none is seen before all are there."""
        from obstore.exceptions import AlreadyExistsError

        with self._explained(), step(f"put {path.rpartition('/')[2]}"):
            try:
                self._store.put(path, data, mode="create" if create else "overwrite", chunk_size=_PART)
            except AlreadyExistsError:
                raise TakenError(path) from None

    def copy(self, source: str, target: str) -> None:
        """See `FolderStore`."""
        with self._explained(), step(f"put {target.rpartition('/')[2]}"):
            self._store.copy(source, target)

    def is_program(self, path: str) -> bool:  # noqa: ARG002
        """See `FolderStore`."""
        return False

    def bring(self, version: str, files: Mapping[str, Path], progress: Progress) -> None:
        """See `FolderStore`: file by file, since nothing can be renamed."""

        def send(item: tuple[str, Path]) -> None:
            path, file = item
            self.put(f"{version}/{path}", file)
            progress(file.stat().st_size)

        in_parallel(send, files.items())

    def delete(self, path: str) -> None:
        """See `FolderStore`."""
        with self._explained(), step(f"delete {path.rpartition('/')[2]}"):
            self._store.delete(path)

    def delete_folder(self, path: str) -> None:
        """See `FolderStore`; file by file."""
        in_parallel(lambda each: self.delete(f"{path}/{each}"), self.sizes(path), TRANSFERS)

    def staging(self, model: str, number: int) -> Path:
        """See `FolderStore`: on this machine."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
        place = Path(os.environ.get("TIDEGATE_CACHE") or cache) / "staged"
        return place / hashlib.sha256(self.where.encode()).hexdigest()[:16] / model / str(number)

    def clean(self, model: str) -> None:
        """See `FolderStore`: half an object is never seen."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise NotFoundError("there is no such object", where=self.where) from None
        except BaseError as error:
            raise of_store(error, self.where) from None


Store = FolderStore | ObjectStore


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of every file below a folder, in order, following nothing; IntegrityError for links."""
    for path, item in below(folder):
        if item.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield path, item.stat(follow_symlinks=False)
        elif not item.is_dir(follow_symlinks=False):
            do = "delete it: in a repository there are files and folders only"
            raise IntegrityError(f"{path} is a link or a special file", where=folder, do=do)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, if they are missing; all may read it, whatever the umask."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with step(f"make {folder.name}"):
            folder.mkdir(exist_ok=True)
            allow(folder, 0o755)


def allow(path: Path, mode: int) -> None:
    """Add to what is allowed: Triton reads as another user, and others of a group may go on with what one began."""
    if (before := path.stat().st_mode) & mode != mode:
        path.chmod(before | mode)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk, if the file system can promise that; follows no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _write(file: Path, data: bytes | Path) -> None:
    """Write a new file from bytes or from another file, and have it on the disk; raises FileExistsError."""
    with file.open("xb") as to:
        if isinstance(data, bytes):
            to.write(data)
        else:
            with data.open("rb") as source:
                shutil.copyfileobj(source, to, _PART)
        to.flush()
        os.fsync(to.fileno())
    allow(file, 0o644 if isinstance(data, bytes) else 0o644 | data.stat().st_mode & 0o111)


def _rename(source: Path, target: Path) -> None:
    """Rename, which is at once for all readers, and have both folders keep it over a power cut."""
    with step(f"rename to {target.name}"):
        source.rename(target)
    sync(target.parent)
    sync(source.parent)
