"""How long a caller waits, when it comes again, and when it stops asking who does not answer."""

import threading
import time
from random import uniform
from typing import Final

from ..errors import UnreachableError

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Patience:
    """The time that one call has, all its tries together."""

    __slots__ = ("_end", "_pause", "seconds")

    def __init__(self, seconds: float) -> None:
        """The time begins now."""
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds that are left; less than 0 when the time is up."""
        return self._end - time.monotonic()

    def wait(self, retry_after: float | None = None) -> bool:
        """Wait before another try, and tell True; False, at once, where the time would be up before it.

        `retry_after` is what the proxy said, and never undercut; with a little chance on top, so that callers who were
        sent away together do not come back together. Without it the pauses grow from a tenth of a second to two.
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


class Breaker:
    """Stops asking a proxy that fails again and again: whoever calls is told at once, and now and then one may try.

    What opens it is no answer, or an answer that the proxy or its server failed; one that is merely busy does not.
    """

    def __init__(self, failures: int = 5, seconds: float = 1.0, longest: float = 30.0) -> None:
        """So many failures, one after the other, open it for so long; twice as long after each trial that fails."""
        self._failures = failures
        self._first = seconds
        self._longest = longest
        self._lock = threading.Lock()
        self._failed = 0
        self._closed_for = seconds
        self._until: float | None = None
        self._trial = False

    def check(self, where: str) -> bool:
        """Raise UnreachableError while it is open; tell whether who is let through is the trial of a half open one."""
        with self._lock:
            if self._until is None:
                return False
            left = self._until - time.monotonic()
            if left <= 0 and not self._trial:
                self._trial = True
                return True
        raise UnreachableError(
            "the proxy is not asked now",
            where=where,
            why=f"{self._failed} calls failed, one after the other",
            do=f"try again in {max(left, 0.1):.1f} s, when one call may try it",
        )

    def succeeded(self) -> None:
        """Count an answer."""
        if self._failed or self._until is not None:
            with self._lock:
                self._failed, self._until, self._trial, self._closed_for = 0, None, False, self._first

    def failed(self, *, trial: bool = False) -> None:
        """Count a failure: of the trial, or of another call, which may have begun long before it."""
        with self._lock:
            self._failed += 1
            if trial:
                self._closed_for = min(self._closed_for * 2, self._longest)
            if trial or (self._until is None and self._failed >= self._failures):
                self._until = time.monotonic() + self._closed_for
                self._trial = False

    def undecided(self, *, trial: bool = False) -> None:
        """Give a trial back that told nothing of the proxy."""
        with self._lock:
            self._trial = self._trial and not trial
