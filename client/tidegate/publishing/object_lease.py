"""One publisher at a time for a model of a repository in an object store: a lease that is an object.

Every write of it is conditional on what it was before, so of two only one succeeds. Its age is measured by the store's
own clock. Whoever dies holds it until it has not been renewed for a while.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from secrets import token_hex
from threading import Event, Thread
from time import monotonic

from ..errors import BusyError, TidegateError
from .lease import Holder, read_holder
from .object_store import ObjectStore, Tag, TakenError

BEAT_SECONDS = 10.0
EXPIRY_SECONDS = 60.0
_FREE = b"{}"


class ObjectLease:
    """The lease of one model."""

    def __init__(self, model: str, store: ObjectStore, folder: str, who: str) -> None:
        self._model = model
        self._store = store
        self._path = f"{folder}/lease.json"
        self._clock = f"{folder}/clock-"
        self._me = Holder(who)
        self._text = json.dumps(asdict(self._me)).encode()
        self._renewed = 0.0
        self._lost = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for as long as the block lasts; raises BusyError."""
        asked = monotonic()
        state = [self._acquire()]
        self._renewed = asked
        over = Event()
        beats = Thread(target=self._beat, args=(over, state), daemon=True)
        beats.start()
        try:
            yield
        finally:
            over.set()
            beats.join()
            with suppress(TakenError, TidegateError):
                self._store.put(self._path, _FREE, state[0])

    def check(self) -> None:
        """Raise BusyError when it may be somebody else's, since it could not be renewed for long."""
        if self._lost or monotonic() - self._renewed > EXPIRY_SECONDS - BEAT_SECONDS:
            why = "this process could not renew its lease in time, and somebody else may have taken it"
            raise BusyError(f"model {self._model} may be changed by somebody else", why=why, do="run the command again")

    def _acquire(self) -> Tag:
        try:
            return self._store.put(self._path, self._text, "create")
        except TakenError:
            pass
        said, state, renewed = self._store.read(self._path)
        if said != _FREE and (left := renewed + EXPIRY_SECONDS - self._now()) > 0:
            raise read_holder(said).busy(self._model, left)
        try:
            return self._store.put(self._path, self._text, state)
        except TakenError:
            raise read_holder(self._store.read(self._path)[0]).busy(self._model, EXPIRY_SECONDS) from None

    def _now(self) -> float:
        path = self._clock + token_hex(8)
        self._store.put(path, b"")
        try:
            return self._store.read(path)[2]
        finally:
            self._store.delete(path)

    def _beat(self, over: Event, state: list[Tag]) -> None:
        while not self._lost and not over.wait(BEAT_SECONDS):
            asked = monotonic()
            try:
                state[0] = self._store.put(self._path, self._text, state[0])
            except TakenError:
                self._lost = True
            except TidegateError:
                continue  # `check` tells when it has been too long
            else:
                self._renewed = asked
