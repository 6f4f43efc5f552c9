"""What is sent to the artifact store: bytes, or a file that is hashed while it goes."""

import hashlib
import io
import os
from pathlib import Path
from typing import Self

from .parallel import Progress, Stop, go_on


class Sending(io.RawIOBase):
    """A stream with a known size, which libraries read, and wind back when they try again.

    >>> with Sending.file(path, progress, stop) as content:
    ...     artifacts.write("entry/1/model.onnx", content)
    >>> content.sha256
    """

    def __init__(self, stream: io.RawIOBase | io.BytesIO, size: int, progress: Progress | None, stop: Stop) -> None:
        """Take a stream at its beginning."""
        super().__init__()
        self.size = size
        self._stream, self._progress, self._stop = stream, progress, stop
        self._hash, self._told = hashlib.sha256(), 0

    @classmethod
    def file(cls, path: Path, progress: Progress | None, stop: Stop) -> Self:
        """Open a file, which must be one and no link to one."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return cls(open(descriptor, "rb", buffering=0), os.fstat(descriptor).st_size, progress, stop)

    @classmethod
    def content(cls, content: bytes) -> Self:
        """Send bytes that are in memory anyway."""
        return cls(io.BytesIO(content), len(content), None, Stop())

    @property
    def sha256(self) -> str:
        """Digest, in hexadecimal, of what was read since the beginning."""
        return self._hash.hexdigest()

    def __len__(self) -> int:
        return self.size

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Back to the beginning, at least."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read on; at most as many bytes as the file had when it was opened."""
        go_on(self._stop)
        left = self.size - self._stream.tell()
        chunk = self._stream.read(left if size < 0 else min(size, left)) or b""
        self._hash.update(chunk)
        if self._progress is not None and (more := self._stream.tell() - self._told) > 0:
            self._progress(more)  # what goes a second time counts once
            self._told += more
        return chunk

    def tell(self) -> int:
        """How far it is read."""
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Wind back, or look for the end."""
        if offset == 0 and whence == io.SEEK_SET:
            self._hash = hashlib.sha256()
        return self._stream.seek(offset, whence)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        super().close()
