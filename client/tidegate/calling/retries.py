"""The time that a call has, and pauses between its tries."""

import time
from random import uniform
from typing import Final

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Deadline:
    """The time that one call has, all its tries together."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds that are left; less than 0 when the time is up."""
        return self._end - time.monotonic()

    def wait(self, retry_after: float | None = None) -> bool:
        """Wait before another try, and tell True; False, at once, where the time would be up before it.

        What the proxy said is never undercut; a little chance on top keeps callers that were sent away together from
        coming back together. Without it the pauses grow from a tenth of a second to two.
        """
        if retry_after is None:
            pause = self._pause * uniform(0.5, 1.0)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        else:
            pause = retry_after + uniform(0.0, min(0.5, retry_after / 4 + 0.05))
            if retry_after < self.left <= pause:
                pause = retry_after
        if pause >= self.left:
            return False
        time.sleep(pause)
        return True
