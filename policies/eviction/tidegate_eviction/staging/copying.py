"""One copy of a model's files into the folder near the server: each file proved, all of them or none."""

import errno
import hashlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

from .sources import Contents, SourceFile
from .tier import disk_bytes

THREADS = 4  # Files that are copied at a time: where each has its round trips, one after the other takes long.
_LOOK_SECONDS = 0.1  # Seconds between two looks of a copy that waits, whether it still has to.


class StagingError(Exception):
    """Says why a model's files cannot be staged."""


class ChangedError(StagingError):
    """A model's files changed while they were copied."""


class Copy:
    """A copy that is under way, on threads; one that a load waits for is not held back."""

    def __init__(self, contents: Contents, bytes_per_second: float | None, held: Callable[[], bool]) -> None:
        self.contents = contents
        self.bytes = disk_bytes(contents)
        self.hurries = Event()
        self._rate, self._held = bytes_per_second, held
        self._stop = Event()
        self._pace = Lock()
        self._turn = time.monotonic()  # When the next bytes may be read.

    def run(self, target: Path) -> None:
        """Copy everything into an empty folder; raises StagingError and OSError, and then it holds a part."""
        for folder in self.contents.listing.folders:
            (target / folder).mkdir()
        with ThreadPoolExecutor(THREADS, "copying") as threads:
            try:
                for done in [threads.submit(self._file, target, file) for file in self.contents.listing.files]:
                    done.result()
            except BaseException:
                self._stop.set()
                raise

    def stop(self) -> None:
        """End it soon, with an error."""
        self._stop.set()

    def _file(self, target: Path, file: SourceFile) -> None:
        vouched = self.contents.digests.get(file.path)
        digest, size = hashlib.sha256(), 0
        with open(target / file.path, "xb") as copy:
            for chunk in self.contents.source.chunks(file.path):
                self._wait(len(chunk))
                if vouched:
                    digest.update(chunk)
                copy.write(chunk)
                size += len(chunk)
            os.fchmod(copy.fileno(), 0o755 if file.is_executable else 0o644)
        if vouched and digest.hexdigest() != vouched:
            raise StagingError(f"{file.path} of model {self.contents.model} has other content than was registered")
        if size != file.size:
            raise ChangedError(f"{file.path} of model {self.contents.model} changed while it was copied")

    def _wait(self, size: int) -> None:
        """Wait until so many bytes may be copied; those of a copy that nobody waits for yield to others."""
        if self._rate and not self.hurries.is_set():
            with self._pace:
                self._turn = max(self._turn, time.monotonic()) + size / self._rate
        while not self._stop.is_set() and not self.hurries.is_set():
            seconds = self._turn - time.monotonic()
            if seconds <= 0 and not self._held():
                return
            self.hurries.wait(min(max(seconds, _LOOK_SECONDS / 10), _LOOK_SECONDS))
        if self._stop.is_set():
            raise OSError(errno.ECANCELED, "the copy was stopped")
