"""How a caller's HTTP connection is ended: once what is left for the caller is written, or at once."""

import asyncio

from ..guests import Guest

CLOSE_SECONDS = 5.0  # Seconds in which a caller takes some of what is left for it, or its connection is cut.


class Closing(Guest):
    """A connection with answers that its caller may take, or not."""

    _look: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """End the connection once what is left for the caller is written; cut it when the caller takes none of it."""
        self.transport.close()
        self._look_later()

    def lost(self) -> None:
        """Give all back: what would look at it later knows it no longer."""
        super().lost()
        if self._look is not None:
            self._look.cancel()

    def _look_later(self) -> None:
        if left := self.unsent:
            self._look = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._cut_if_stuck, left)

    def _cut_if_stuck(self, before: int) -> None:
        if self.unsent >= before:
            self.transport.abort()
        else:
            self._look_later()
