"""Long work in a thread, in short pieces with rests for calls in between: only one thread runs Python at once."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

PIECE_SECONDS = 0.0005
REST_SECONDS = 0.005  # Ten times as long: calls have more than nine tenths of the time.


class StoppedError(Exception):
    """The work is of no use any more: the proxy ends."""


class Yielder:
    """Is asked after each small step of the work; it `rests`, unless nobody is served yet."""

    def __init__(self, *, rests: bool, stop: threading.Event | None = None) -> None:
        """`stop` ends the work at its next step: a thread cannot be cancelled."""
        self._rests = rests
        self._stop = stop or threading.Event()
        self._until = monotonic() + PIECE_SECONDS

    def step(self) -> None:
        """Rest, if the piece has been long enough; raises StoppedError."""
        if self._stop.is_set():
            raise StoppedError
        if self._rests and monotonic() >= self._until:
            if self._stop.wait(REST_SECONDS):
                raise StoppedError
            self._until = monotonic() + PIECE_SECONDS


@contextmanager
def no_full_collections() -> Iterator[None]:
    """Put full garbage collections off until a table is taken over: each holds the loop for 0.1 s with 10,000 models.

    Reference counts free the routes of the table before it.
    """
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, full)
