"""Every change that a publisher makes to files goes through here, so that a test can stop it before and after each."""

import errno
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import IntegrityError

Watch = Callable[[str, str], None]  # Told `before` and `after`, and which step.
_CHUNK = 4 << 20


_watch: Watch | None = None


def watch(watcher: Watch | None = None) -> None:
    """Have each step watched, by one watcher: what it raises is raised in the place of the step."""
    global _watch
    _watch = watcher


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name one change to a repository, so that tests can stop before and after it."""
    if _watch:
        _watch("before", name)
    yield
    if _watch:
        _watch("after", name)


def refuse_links(below: Path, path: Path) -> None:
    """Raise IntegrityError for a link among the steps of a path below a folder: others may write the volume too."""
    for each in (path, *path.parents):
        if each == below:
            return
        if each.is_symlink():
            do = "find out who laid it there, and take it away"
            raise IntegrityError("this is a symbolic link, which nobody follows here", where=each, do=do)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, where they are missing; all may read it, whatever the umask."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with step(f"make {folder.name}"):
            folder.mkdir(exist_ok=True)
            allow(folder, 0o755)


def rename(source: Path, target: Path) -> None:
    """Rename, which is at once for all readers, and have both folders keep it over a power cut."""
    with step(f"rename {source.name} to {target.name}"):
        source.rename(target)
    sync(target.parent)
    if source.parent != target.parent:
        sync(source.parent)


def write(file: Path, data: Path | bytes) -> None:
    """Write a new file from bytes or from another file, piece by piece, and have it on the disk; a copy of a program
    is one, too.

    What is there goes, and no link is followed: another writer of the volume must not choose what is written over.
    """
    file.unlink(missing_ok=True)
    with step(f"write {file.name}"), file.open("xb") as to:
        if isinstance(data, bytes):
            to.write(data)
        else:
            with data.open("rb") as source:
                shutil.copyfileobj(source, to, _CHUNK)
        to.flush()
        os.fsync(to.fileno())
    allow(file, 0o644 if isinstance(data, bytes) else 0o644 | data.stat().st_mode & 0o111)


def allow(path: Path, mode: int, status: os.stat_result | None = None) -> None:
    """Add to what is allowed: Triton reads as somebody else, and others of a group may go on with what one began."""
    if (before := (status or path.stat()).st_mode) & mode != mode:
        path.chmod(before | mode)


def remove(path: Path) -> None:
    """Delete a file or a whole folder that nobody reads any more; nothing where there is none."""
    if path.is_symlink() or path.is_file():
        with step(f"delete {path.name}"):
            path.unlink()
    elif path.is_dir():
        with step(f"delete {path.name}"):
            shutil.rmtree(path)


def sync_all(folder: Path) -> bool:
    """Have all of a file system on the disk at once; False where that cannot be done, or fails.

    For very many files that is several times faster than each by itself. Before Linux 5.8 it told no errors.
    """
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    program = shutil.which("sync")
    if program is None or not sys.platform.startswith("linux") or release is None:
        return False
    tells = (int(release[1]), int(release[2])) >= (5, 8)
    return tells and subprocess.run([program, "-f", folder], capture_output=True, check=False).returncode == 0


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk, where the file system can promise that; follows no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
