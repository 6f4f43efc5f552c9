"""A circuit breaker: keeps requests away from a replica that fails, and lets one through to see whether it is back."""

from typing import Literal

State = Literal["closed", "open", "half-open"]
FAILURES = 5
"""Failures in a row that open it."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds that it stays open the first time; twice as long each time after that, up to the longest."""


class Breaker:
    """Of one replica. Times are seconds on one monotonic clock."""

    __slots__ = ("_failures", "_pause", "_trying", "_until")

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = 0.0
        self._trying = False

    def allows(self, now: float) -> bool:
        """Tell whether a request may be sent; where one has been let through as a trial, no other is."""
        return self._failures < FAILURES or (now >= self._until and not self._trying)

    def sent(self) -> None:
        """Note that a request was sent."""
        if self._failures >= FAILURES:
            self._trying = True

    def succeeded(self) -> None:
        """Note an answer, whatever it says."""
        if self._failures:
            self._failures = 0
            self._pause = FIRST_PAUSE
            self._trying = False

    def failed(self, now: float) -> None:
        """Note that a request had no answer."""
        self._failures += 1
        if self._failures >= FAILURES:
            if self._trying or self._failures > FAILURES:
                self._pause = min(LONGEST_PAUSE, self._pause * 2)
            self._until = now + self._pause
            self._trying = False

    def given_up(self) -> None:
        """Note that a trial ended without telling anything, as when its caller has left."""
        self._trying = False

    def state(self, now: float) -> State:
        """Return its state, for people."""
        if self._failures < FAILURES:
            return "closed"
        return "half-open" if self._trying or now >= self._until else "open"

    def opens_in(self, now: float) -> float:
        """Return the seconds until a request may be tried."""
        return max(0.0, self._until - now) if self._failures >= FAILURES else 0.0
