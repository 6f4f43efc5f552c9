"""A lease on a model, so that only one publisher changes it. It names its holder, who renews it.

A lease is a numbered file, which only one of several processes can create. A publisher that finds the latest one
released, or expired by the store's own clock, creates the next. A holder that could not renew its lease in time has
lost it.
"""

import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex
from threading import Event, Thread
from time import monotonic
from typing import Final

from ..errors import BusyError, NotFoundError, TidegateError, UnfinishedError
from .stores import Store, TakenError

_LIMIT_BYTES: Final = 500
_NAME: Final = re.compile(r"(lease|free)-([1-9][0-9]{0,17})")
"""Leases, and marks of released ones. The marks are empty files, which can be created even on a full volume."""


class Lease:
    """The lease of one model. Its holder renews it at each beat."""

    def __init__(
        self, store: Store, folder: str, model: str, who: str, expiry_seconds: float, beat_seconds: float
    ) -> None:
        self._store, self._folder, self._model = store, folder, model
        self.expiry_seconds, self._beat_seconds = expiry_seconds, beat_seconds
        since = datetime.now(UTC).isoformat(timespec="seconds")
        process = f"process {os.getpid()} on {socket.gethostname()}"
        self._text = f"{who} has been publishing since {since} ({process})".encode()
        self._number, self._renewed, self._lost = 0, 0.0, False

    @contextmanager
    def held(self) -> Iterator[None]:
        self._acquire()
        over = Event()
        beats = Thread(target=self._beat, args=(over,), daemon=True)
        beats.start()
        try:
            yield
        finally:
            over.set()
            beats.join()
            with suppress(TidegateError):  # the lease expires anyway
                if not self._lost:
                    self._store.put(f"{self._folder}/free-{self._number}", b"")

    def check(self) -> None:
        """Raise BusyError if another publisher may have the lease, because it could not be renewed."""
        if self._lost or monotonic() - self._renewed > self.expiry_seconds - self._beat_seconds:
            why = "this process could not renew its lease in time, so another one may have taken it"
            what = f"another publisher may be changing model {self._model}"
            raise BusyError(what, why=why, do="run the command again")

    def _acquire(self) -> None:
        self._renewed, there = monotonic(), self._store.names(self._folder)
        last = max(self._numbers(there), default=0)
        self._number = last + 1
        if last and f"free-{last}" not in there:
            now = self._now()
            with suppress(NotFoundError):  # a successor deleted it
                left = self.expiry_seconds - abs(now - self._store.modified(self._path(last)))
                if left > 0:
                    raise self._busy(self._read(last), left)
        try:
            try:
                self._store.put(self._path(self._number), self._text, create=True)
            except UnfinishedError:  # An empty lease must do on a full volume, so that something can be deleted there.
                self._store.put(self._path(self._number), b"", create=True)
        except TakenError:
            raise self._busy(self._read(self._number), self.expiry_seconds) from None
        if max(self._numbers(), default=0) > self._number:  # on NFS the first listing may have been out of date
            self._store.delete(self._path(self._number))
            raise self._busy(b"", self.expiry_seconds)
        for each in filter(_NAME.fullmatch, there):  # not the clock files of others
            self._store.delete(f"{self._folder}/{each}")

    def _beat(self, over: Event) -> None:
        while not over.wait(self._beat_seconds):
            begun = monotonic()
            if begun - self._renewed > self.expiry_seconds - self._beat_seconds:
                self._lost = True
                return
            with suppress(TidegateError):
                self._store.put(self._path(self._number), self._text)
                self._renewed = begun

    def _numbers(self, there: Iterable[str] | None = None) -> list[int]:
        names = self._store.names(self._folder) if there is None else there
        return [int(found[2]) for each in names if (found := _NAME.fullmatch(each))]

    def _path(self, number: int) -> str:
        return f"{self._folder}/lease-{number}"

    def _read(self, number: int) -> bytes:
        with suppress(NotFoundError):  # released meanwhile
            return next(self._store.chunks(self._path(number)), b"")[:_LIMIT_BYTES]
        return b""

    def _busy(self, text: bytes, retry_after: float) -> BusyError:
        """Return the error that names the holder. Others may have written the lease's text, so it is checked."""
        holder = text.decode("utf-8", "replace")
        who = holder if holder and holder.isprintable() else "another publisher holds the lease"
        do = "wait until it has finished, then run the same command again. The lease of a killed process lasts a minute"
        what = f"model {self._model} is being changed"
        return BusyError(what, why=who, do=do, retry_after=min(retry_after, self.expiry_seconds))

    def _now(self) -> float:
        path = f"{self._folder}/clock-{token_hex(8)}"
        self._store.put(path, b"")
        try:
            return self._store.modified(path)
        finally:
            self._store.delete(path)
