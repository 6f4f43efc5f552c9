"""A circuit breaker: keeps requests away from a replica that fails, and lets one through to see whether it is back."""

from dataclasses import dataclass
from typing import Literal

State = Literal["closed", "open", "half-open"]
FAILURES = 5  # Failures in a row that open it.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds that it stays open at first; twice as long after each trial that fails, up to the longest."""


@dataclass(slots=True, eq=False)
class Trial:
    """The one request that finds out whether the replica is back: no other opens or closes the breaker."""

    _breaker: "Breaker"

    def given_up(self) -> None:
        """Let another request try: this one ended without an outcome, as when its caller has left."""
        self._breaker.release(self)


class Breaker:
    """Circuit breaker of one replica: opens after failures in a row, then lets one trial through. `now`: monotonic."""

    __slots__ = ("_pause", "_trial", "_until", "failures")

    def __init__(self) -> None:
        self.failures = 0  # In a row; while there are none, nobody needs to ask it or tell it of a success.
        self._pause = FIRST_PAUSE
        self._until = 0.0
        self._trial: Trial | None = None

    def allows(self, now: float) -> bool:
        """Tell whether a request may be sent; while a trial is in flight, no other may."""
        return self.failures < FAILURES or (now >= self._until and self._trial is None)

    def claim(self, now: float) -> Trial | None:
        """Return the trial, if the request that is sent now is to be one; None where the breaker is closed."""
        if self.failures < FAILURES or now < self._until or self._trial is not None:
            return None
        self._trial = Trial(self)
        return self._trial

    def release(self, trial: Trial) -> None:
        """Note that a trial ended without an outcome, if it is the one in flight."""
        if trial is self._trial:
            self._trial = None

    def succeeded(self, trial: Trial | None = None) -> None:
        """Note an answer, whatever it says. While it is open, only that of its trial counts."""
        if self.failures and (self.failures < FAILURES or (trial is not None and trial is self._trial)):
            self.failures = 0
            self._pause = FIRST_PAUSE
            self._trial = None

    def failed(self, now: float, trial: Trial | None = None) -> None:
        """Note that a request had no answer. While it is open, only that of its trial counts."""
        if self.failures < FAILURES:
            self.failures += 1
            if self.failures == FAILURES:
                self._until = now + self._pause
        elif trial is not None and trial is self._trial:
            self._trial = None
            self._pause = min(LONGEST_PAUSE, self._pause * 2)
            self._until = now + self._pause

    def state(self, now: float) -> State:
        """Return its state, for people."""
        if self.failures < FAILURES:
            return "closed"
        return "half-open" if self._trial is not None or now >= self._until else "open"

    def opens_in(self, now: float) -> float:
        """Return the seconds until a request may be tried."""
        return max(0.0, self._until - now) if self.failures >= FAILURES else 0.0
