"""Walks and reads files without following links, and computes their SHA-256."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import IntegrityError

CHUNK_BYTES = 1 << 20
_DEEPEST = 500  # nested directories: more than in any registered path


def sha256_of(chunks: Iterable[bytes], each: Callable[[int], None] | None = None) -> str:
    """Return the hexadecimal digest. Calls `each` with the size of every chunk."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        if each is not None:
            each(len(chunk))
    return digest.hexdigest()


def chunks_of(descriptor: int) -> Iterator[bytes]:
    """Yield the chunks of an open file from its position to its end."""
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def below(folder: Path, prefix: str = "") -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """Yield everything below a directory with its relative path, directories before their content. Follows no link."""
    if prefix.count("/") > _DEEPEST:
        raise IntegrityError("directories are nested more deeply than in any entry", where=folder)
    with os.scandir(folder) as found:
        for item in sorted(found, key=lambda item: item.name):
            yield prefix + item.name, item
            if item.is_dir(follow_symlinks=False):
                yield from below(Path(item.path), f"{prefix}{item.name}/")


@contextmanager
def opened(file: Path) -> Iterator[int]:
    """Open a file for reading. Raises OSError, with ELOOP for a link or anything else that is not a regular file."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, "not a regular file", str(file))
        yield descriptor
    finally:
        os.close(descriptor)


def hashed(file: Path, each: Callable[[int], None] | None = None) -> tuple[int, str]:
    """Return the size and the digest of a file. Raises OSError like `opened`."""
    with opened(file) as descriptor:
        sha256 = sha256_of(chunks_of(descriptor), each)
        return os.lseek(descriptor, 0, os.SEEK_CUR), sha256
