"""Stores of a repository's files: a directory, or an object store. Paths start with the repository's own directory.

Locks and staged files are in `.tidegate/` next to that directory, where servers do not read.
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
"""Per request. A lease must not wait longer than it lasts."""


class TakenError(Exception):
    """The file to create exists already."""


class FolderStore:
    """A directory on a local disk, NFS or EFS. Others may write to the volume, so it follows no links.

    Files and versions are renamed from `.tidegate/` on the same file system, so an NFS client never sees a partial one.
    Methods raise TidegateError, and IntegrityError for links and special files.
    """

    when_full = "free space (tidegate prune)"  # The remedy if there is no space to stage a version.
    copies = False  # Whether `bring` sends files elsewhere, so that they must be compared again.

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            do = "mount the dataset, or create the directory for a new repository"
            raise NotFoundError("the directory of the model repository does not exist", where=folder, do=do)
        folder = folder.resolve()
        self.where, self.root, self._parent = str(folder), folder.name, folder.parent

    def folders(self, path: str) -> list[str]:
        with explained(self.where):
            folder = self._path(path)
            return sorted(item.name for item in os.scandir(folder) if item.is_dir()) if folder.is_dir() else []

    def names(self, path: str) -> list[str]:
        """Return the paths of the files below a directory at one moment."""
        with explained(self.where):
            folder = self._path(path)
            return [each for each, _ in below(folder)] if folder.is_dir() else []

    def sizes(self, path: str) -> dict[str, int]:
        """Return the files below a directory by relative path, with their sizes in bytes."""
        with explained(self.where):
            folder = self._path(path)
            return {each: status.st_size for each, status in walk(folder)} if folder.is_dir() else {}

    def chunks(self, path: str) -> Iterator[bytes]:
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
        """Return when a file was written, by the store's own clock (Unix seconds). Raises NotFoundError."""
        with explained(self.where):
            try:
                return self._path(path).stat().st_mtime
            except FileNotFoundError:
                raise NotFoundError(f"there is no file {path}", where=self.where) from None

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Write a file atomically. With `create`, raise TakenError if it exists."""
        with explained(self.where):
            target = self._path(path)
            if not create:
                self._put(path, target, lambda file: _write(file, data))
                return
            make_folder(target.parent)
            with step(f"create {target.name}"):
                try:
                    _write(target, data)
                except (FileExistsError, FileNotFoundError):  # not found: a successor has already deleted it
                    raise TakenError(path) from None
                except OSError:
                    target.unlink(missing_ok=True)
                    raise

    def copy(self, source: str, target: str) -> None:
        """Copy a file, and keep its permission to execute."""
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
        if partial.stat().st_mtime_ns <= before:  # Triton ignores files that are older than the ones it has seen.
            os.utime(partial, ns=(before + 10**9, before + 10**9))
        _rename(partial, target)

    def is_program(self, path: str) -> bool:
        """Return whether a file is executable. Object stores have no modes, and Triton sets the mode of its copy."""
        return os.access(self._path(path), os.X_OK)

    def bring(self, version: str, files: Mapping[str, Path], progress: Progress) -> None:
        """Flush staged files to the disk, and rename them to a version's new directory."""
        with explained(self.where):
            target, new = self._path(version), self._scratch(version)
            if target.exists():
                return  # the caller compares it with its manifest
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
        with explained(self.where), step(f"delete {path.rpartition('/')[2]}"):
            self._path(path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> None:
        """Delete a directory, if it exists. It is renamed first, so that it disappears at once for all readers."""
        with explained(self.where):
            if (folder := self._path(path)).is_dir():
                aside = self._scratch(path)
                make_folder(aside.parent)
                _rename(folder, aside)
                with step(f"delete {folder.name}"):
                    shutil.rmtree(aside)

    def staging(self, model: str, number: int) -> Path:
        """Return the directory in which a version is staged. It may not exist yet."""
        return self._path(f"{STATE}/{self.root}/{model}/staged/{number}")

    def clean(self, model: str) -> None:
        """Delete temporary files of earlier runs. Raises UsageError if files cannot be renamed into the repository."""
        with explained(self.where):
            # The directory stays: it could not be created on a full volume, and then nothing could be deleted.
            trash = self._scratch(f"{self.root}/{model}").parent
            make_folder(trash)
            if trash.stat().st_dev != os.stat(self.where).st_dev:
                what = "its parent directory is on another file system, so publishing would not be atomic"
                do = "set `path` in the definition to a directory below the dataset's root"
                raise UsageError(what, where=self.where, do=do)
            for each in trash.iterdir():
                if each.is_dir() and not each.is_symlink():
                    with suppress(RecursionError):  # caused by directories of others
                        shutil.rmtree(each, ignore_errors=True)
                else:
                    each.unlink(missing_ok=True)

    def _path(self, path: str, *, itself: bool = True) -> Path:
        """Return the local path. Raises IntegrityError for a link on the way, or, with `itself`, at the path."""
        file = self._parent / path
        for each in ((file,) if itself else ()) + tuple(file.parents):
            if each == self._parent:
                break
            if each.is_symlink():
                do = "find out who created it, and remove it"
                raise IntegrityError("symbolic links are not followed", where=each, do=do)
        return file

    def _scratch(self, path: str) -> Path:
        """Return a new path for a temporary file, or one to delete, of the model that a path belongs to."""
        steps = path.split("/")
        model = steps[2] if steps[0] == STATE else steps[1]
        return self._path(f"{STATE}/{self.root}/{model}/trash") / token_hex(8)


class ObjectStore:
    """The parent of a repository's directory in an object store. Credentials come from the environment, as in each
    cloud's own tools (for AWS: keys, IRSA, the instance's)."""

    when_full = "free space, or set TIDEGATE_CACHE to a larger disk"
    copies = True

    def __init__(self, url: str) -> None:
        self.where = url
        try:
            place = parsed(url)
        except ValueError:
            raise UsageError("not a URL of a repository in an object store", do=f"write {FORMS}") from None
        if not place.folders:
            why = "locks are next to it, and every directory in it counts as a model"
            raise UsageError("the repository is a whole bucket", where=url, why=why, do=f"add a directory: {FORMS}")
        *above, self.root = place.folders
        self._store = open_store(place, tuple(above), retry_config=_RETRY)

    def folders(self, path: str) -> list[str]:
        with self._explained():
            found = self._store.list_with_delimiter(path)["common_prefixes"]
            return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def names(self, path: str) -> list[str]:
        return list(self.sizes(path))

    def sizes(self, path: str) -> dict[str, int]:
        with self._explained():
            pages = self._store.list(f"{path}/")
            return {each["path"].removeprefix(f"{path}/"): each["size"] for page in pages for each in page}

    def chunks(self, path: str) -> Iterator[bytes]:
        with self._explained():
            for chunk in self._store.get(path).stream(min_chunk_size=_PART):
                yield bytes(chunk)

    def modified(self, path: str) -> float:
        with self._explained():
            return float(self._store.head(path)["last_modified"].timestamp())

    def put(self, path: str, data: bytes | Path, *, create: bool = False) -> None:
        """Like `FolderStore`. A large file is sent in parts, and becomes visible when all are there."""
        from obstore.exceptions import AlreadyExistsError

        with self._explained(), step(f"put {path.rpartition('/')[2]}"):
            try:
                self._store.put(path, data, mode="create" if create else "overwrite", chunk_size=_PART)
            except AlreadyExistsError:
                raise TakenError(path) from None

    def copy(self, source: str, target: str) -> None:
        with self._explained(), step(f"put {target.rpartition('/')[2]}"):
            self._store.copy(source, target)

    def is_program(self, path: str) -> bool:  # noqa: ARG002
        return False

    def bring(self, version: str, files: Mapping[str, Path], progress: Progress) -> None:
        """Send the files one by one, because an object store cannot rename."""

        def send(item: tuple[str, Path]) -> None:
            path, file = item
            self.put(f"{version}/{path}", file)
            progress(file.stat().st_size)

        in_parallel(send, files.items())

    def delete(self, path: str) -> None:
        with self._explained(), step(f"delete {path.rpartition('/')[2]}"):
            self._store.delete(path)

    def delete_folder(self, path: str) -> None:
        in_parallel(lambda each: self.delete(f"{path}/{each}"), self.sizes(path), TRANSFERS)

    def staging(self, model: str, number: int) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
        place = Path(os.environ.get("TIDEGATE_CACHE") or cache) / "staged"
        return place / hashlib.sha256(self.where.encode()).hexdigest()[:16] / model / str(number)

    def clean(self, model: str) -> None:
        """Do nothing: there are no partial objects."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise NotFoundError("the object does not exist", where=self.where) from None
        except BaseError as error:
            raise of_store(error, self.where) from None


Store = FolderStore | ObjectStore


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of every file below a directory, in order. Raises IntegrityError for links."""
    for path, item in below(folder):
        if item.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield path, item.stat(follow_symlinks=False)
        elif not item.is_dir(follow_symlinks=False):
            do = "delete it: a repository may contain only files and directories"
            raise IntegrityError(f"{path} is a link or a special file", where=folder, do=do)


def make_folder(folder: Path) -> None:
    """Create a directory and its missing parents, readable for all, whatever the umask."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with step(f"make {folder.name}"):
            folder.mkdir(exist_ok=True)
            allow(folder, 0o755)


def allow(path: Path, mode: int) -> None:
    """Add permissions: Triton reads as another user, and others of a group may continue the publishing."""
    if (before := path.stat().st_mode) & mode != mode:
        path.chmod(before | mode)


def sync(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk, if the file system supports it. Follows no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _write(file: Path, data: bytes | Path) -> None:
    """Write a new file from bytes or from another file, and flush it to the disk. Raises FileExistsError."""
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
    """Rename, which is atomic for all readers, and flush both directories so that it survives a power cut."""
    with step(f"rename to {target.name}"):
        source.rename(target)
    sync(target.parent)
    sync(source.parent)
