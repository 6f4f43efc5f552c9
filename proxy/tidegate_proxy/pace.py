"""Long work beside requests: in short pieces, with rests in between that are theirs."""

import asyncio
from time import monotonic

PIECE_SECONDS = 0.0005
REST_SECONDS = 0.005  # Ten times as long: requests have more than nine tenths of the time, and wait for one piece.


class Pace:
    """Is asked after each small step of long work; it `rests`, unless nobody is served yet."""

    def __init__(self, *, rests: bool) -> None:
        self._rest = REST_SECONDS if rests else 0.0
        self._until = monotonic() + PIECE_SECONDS

    async def step(self) -> None:
        """Rest, if the piece has been long enough."""
        if monotonic() >= self._until:
            await asyncio.sleep(self._rest)
            self._until = monotonic() + PIECE_SECONDS
