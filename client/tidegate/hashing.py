"""Files on disk, gone through and read without following links, and their SHA-256."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import IntegrityError

CHUNK_BYTES = 1 << 20
_DEEPEST = 500  # Folders in one another: more than any path that was registered has.


def sha256_of(chunks: Iterable[bytes], each: Callable[[int], None] | None = None) -> str:
    """Return the digest, in hexadecimal; `each` is told how many bytes more are hashed."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        if each is not None:
            each(len(chunk))
    return digest.hexdigest()


def chunks_of(descriptor: int) -> Iterator[bytes]:
    """Yield an open file in chunks, from where it is read up to its end."""
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def below(folder: Path, prefix: str = "") -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """Yield all that lies below a folder, by its path there, folders before what is in them; no link is followed."""
    if prefix.count("/") > _DEEPEST:
        raise IntegrityError("folders lie in one another deeper than in any entry", where=folder)
    with os.scandir(folder) as found:
        for item in sorted(found, key=lambda item: item.name):
            yield prefix + item.name, item
            if item.is_dir(follow_symlinks=False):
                yield from below(Path(item.path), f"{prefix}{item.name}/")


@contextmanager
def opened(file: Path) -> Iterator[int]:
    """Open a file for reading; raises OSError, with ELOOP for a link and for what is no file."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, "this is no file", str(file))
        yield descriptor
    finally:
        os.close(descriptor)


def hashed(file: Path, each: Callable[[int], None] | None = None) -> tuple[int, str]:
    """Return the size and the digest of a file on disk; raises OSError like `opened`."""
    with opened(file) as descriptor:
        sha256 = sha256_of(chunks_of(descriptor), each)
        return os.lseek(descriptor, 0, os.SEEK_CUR), sha256
