"""One publisher at a time for a model: a lease that names its holder, and that the holder renews.

In a folder there is flock too. It is free at once when its holder dies, and says nothing of other hosts where a network
file system keeps locks local, or has none. So the lease there is a file whose time its holder renews. Where no flock
can vouch for it, a lease that has not been renewed for a while is free.
"""

import errno
import fcntl
import json
import os
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread

from ..errors import BusyError, IntegrityError, TidegateError
from ..hashing import opened

_LIMIT_BYTES = 1 << 16
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


def _kernel() -> str:
    """Return what tells one running kernel from another: within one, flock is shared by all containers."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return socket.gethostname()


@dataclass(frozen=True)
class Holder:
    """The process that holds a publishing lease, and its user."""

    who: str
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    kernel: str = field(default_factory=_kernel)
    token: str = field(default_factory=lambda: token_hex(16))

    def busy(self, model: str, retry_after: float | None = None) -> BusyError:
        """Return the error for another publisher that wants the lease."""
        why = f"{self.who} is at it since {self.since} (process {self.process} on {self.host})"
        do = "wait until that is done, then run the same command again"
        return BusyError(f"model {model} is being changed by somebody else", why=why, do=do, retry_after=retry_after)


def read_holder(text: str | bytes) -> Holder:
    """Return the holder that a lease tells; one that says nothing where it cannot be read."""
    with suppress(ValueError, TypeError, RecursionError):
        holder = Holder(**json.loads(text))
        if all(str(each).isprintable() for each in asdict(holder).values()):
            return holder
    return Holder("somebody", "an unknown host", 0, "an unknown time", "", "")


class Lease(ABC):
    """The lease of one model. Without its holder's renewing it is free again after a while."""

    BEAT_SECONDS: float  # Between two renewals.
    EXPIRY_SECONDS: float

    def __init__(self, model: str, who: str) -> None:
        self._model = model
        self._me = Holder(who)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for as long as the block lasts; raises BusyError."""
        with self._acquired():
            over = Event()
            beats = Thread(target=self._beat, args=(over,), daemon=True)
            beats.start()
            try:
                yield
            finally:
                over.set()
                beats.join()
                with suppress(OSError, TidegateError):  # all is done, or has failed for a better reason; it expires
                    self._release()

    @abstractmethod
    def check(self) -> None:
        """Raise BusyError when it is another publisher's, or may be."""

    @abstractmethod
    def _acquired(self) -> AbstractContextManager[None]:
        """Acquire it; raises BusyError."""

    @abstractmethod
    def _renew(self) -> None:
        """Say that its holder lives; what it finds, `check` tells."""

    @abstractmethod
    def _release(self) -> None:
        """Give it back where it is still ours."""

    def _beat(self, over: Event) -> None:
        while not over.wait(self.BEAT_SECONDS):
            with suppress(OSError, TidegateError):
                self._renew()


class FolderLease(Lease):
    """The lease of one model as a file."""

    BEAT_SECONDS = 5.0
    EXPIRY_SECONDS = 30.0

    def __init__(self, model: str, folder: Path, who: str) -> None:
        super().__init__(model, who)
        self._guard = folder / "lock"
        self._file = folder / "lease.json"
        for file in (self._guard, self._file):
            with suppress(FileNotFoundError):  # another holder may be giving it back
                if not stat.S_ISREG(file.lstat().st_mode):
                    raise IntegrityError("this is a link or no file", where=file, do="take it away")
        self._written = True

    def check(self) -> None:
        """Raise BusyError when somebody else has taken it over, since this process was stopped for long."""
        if self._written and (holder := self._read()).token != self._me.token:
            raise holder.busy(self._model)

    @contextmanager
    def _acquired(self) -> Iterator[None]:
        with self._guard.open("a+b") as guard:
            vouched = self._locked(guard.fileno())
            while not self._create(vouched):
                self._take_over(vouched)
            yield

    def _renew(self) -> None:
        if self._read().token == self._me.token:
            os.utime(self._file)

    def _release(self) -> None:
        if self._read().token == self._me.token:
            self._file.unlink()

    def _locked(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise self._read().busy(self._model) from None
            raise
        return True

    def _create(self, vouched: bool) -> bool:
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(self._me), file)
        except OSError as error:
            self._file.unlink()
            # On a full volume flock has to do, so that something can be deleted there.
            if not (vouched and error.errno in (errno.ENOSPC, errno.EDQUOT)):
                raise
            self._written = False
        return True

    def _take_over(self, vouched: bool) -> None:
        """Remove the lease of a holder that is gone; raises BusyError when it may live."""
        try:
            holder, renewed = self._read(), self._file.stat().st_mtime
        except FileNotFoundError:
            return
        # This kernel's flock is ours, so a holder of this kernel that has left a lease is dead.
        if not (vouched and holder.kernel == self._me.kernel):
            os.utime(self._guard)  # by the clock of the file system, which is the lease's
            left = renewed + self.EXPIRY_SECONDS - self._guard.stat().st_mtime
            if left > self.EXPIRY_SECONDS:
                os.utime(self._file)  # that clock went back: a live holder renews it, else it expires from now on
            if left > 0:
                raise holder.busy(self._model, min(left, self.EXPIRY_SECONDS))
        aside = self._file.with_name(f"lease-{self._me.token}")
        try:
            self._file.rename(aside)
        except FileNotFoundError:
            return
        if read_holder(aside.read_bytes()).token != holder.token:
            # Another publisher was faster, and this is its live lease: give it back.
            with suppress(FileExistsError):
                os.link(aside, self._file)
            aside.unlink()
            raise self._read().busy(self._model)
        aside.unlink()

    def _read(self) -> Holder:
        try:
            with opened(self._file) as descriptor:
                return read_holder(os.read(descriptor, _LIMIT_BYTES))
        except FileNotFoundError:
            return read_holder(b"")
