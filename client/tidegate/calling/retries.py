"""The deadline of a call, and the pauses between its tries."""

import time
from random import uniform
from typing import Final

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Deadline:
    """The deadline of one call, including retries."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def wait(self, retry_after: float | None = None) -> bool:
        """Wait before another try and return True, or return False immediately if the deadline would pass.

        Never waits less than `retry_after`. A random part keeps callers that were refused together from returning
        together. Without `retry_after`, pauses grow from 0.1 to 2 seconds.
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
