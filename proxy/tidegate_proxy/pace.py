"""Runs long work in a thread, in short pieces with pauses for calls: only one thread runs Python at once."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

PIECE_SECONDS = 0.0005
REST_SECONDS = 0.005  # Ten times as long, so calls have more than nine tenths of the time.


class StoppedError(Exception):
    """The work is no longer needed, because the proxy stops."""


class Yielder:
    """Pauses between pieces of work, unless the proxy serves no one yet (`rests` is false)."""

    def __init__(self, *, rests: bool, stop: threading.Event | None = None) -> None:
        """`stop` ends the work at its next step: a thread cannot be cancelled."""
        self._rests = rests
        self._stop = stop or threading.Event()
        self._until = monotonic() + PIECE_SECONDS

    def step(self) -> None:
        """Pause if the piece was long enough. Raises StoppedError."""
        if self._stop.is_set():
            raise StoppedError
        if self._rests and monotonic() >= self._until:
            if self._stop.wait(REST_SECONDS):
                raise StoppedError
            self._until = monotonic() + PIECE_SECONDS


@contextmanager
def no_full_collections() -> Iterator[None]:
    """Postpone full garbage collections until a new table is in use. With 10,000 models each blocks the loop for 0.1 s.
    Reference counts free the routes of the old table."""
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, full)
