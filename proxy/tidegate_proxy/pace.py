"""Long work in a thread, in short pieces with rests for calls in between: only one thread runs Python at once."""

from time import monotonic, sleep

PIECE_SECONDS = 0.0005
REST_SECONDS = 0.005  # Ten times as long: calls have more than nine tenths of the time.


class Yielder:
    """Is asked after each small step of the work; it `rests`, unless nobody is served yet."""

    def __init__(self, *, rests: bool) -> None:
        self._rests = rests
        self._until = monotonic() + PIECE_SECONDS

    def step(self) -> None:
        """Rest, if the piece has been long enough."""
        if self._rests and monotonic() >= self._until:
            sleep(REST_SECONDS)
            self._until = monotonic() + PIECE_SECONDS
