"""A circuit breaker: keeps requests away from a replica that fails, and lets one through to see whether it is back."""

from dataclasses import dataclass
from math import inf
from typing import Literal

State = Literal["closed", "open", "half-open"]
FAILURES = 5  # Failures in a row that open it.
SILENT = 2  # Health checks in a row without an answer that open it, unless a call was answered in between.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds that it stays open at first; twice as long each further time, up to the longest, until a call is answered."""


def again_seconds(away: float) -> float:
    """Return when to come again to what has been away for so many seconds, and nobody knows when it is back.

    Who obeys, and does so again and again, comes too late by a second or a quarter of its absence at most.
    """
    return min(LONGEST_PAUSE, max(FIRST_PAUSE, away / 4))


@dataclass(slots=True, eq=False)
class Trial:
    """The one request that finds out whether the replica is back: no other opens or closes the breaker."""

    _breaker: "Breaker"

    def given_up(self) -> None:
        """Let another request try: this one ended without an outcome, as when its caller has left."""
        self._breaker.release(self)


class Breaker:
    """Circuit breaker of one replica: opens after failures in a row, then lets one trial through. `now`: monotonic.

    Health checks know better: one that has no answer opens it for as long as there is none.
    """

    __slots__ = ("_opened", "_pause", "_silent", "_trial", "_until", "failures", "why")

    def __init__(self) -> None:
        self.failures = 0  # In a row; while there are none, nobody needs to ask it or tell it of a success.
        self.why = ""  # Why it was last opened, for people.
        self._opened = 0.0
        self._pause = FIRST_PAUSE
        self._silent = 0
        self._until = 0.0  # For ever while health checks have no answer.
        self._trial: Trial | None = None

    # --- requests
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
            self._close()

    def failed(self, now: float, trial: Trial | None = None) -> None:
        """Note that a request had no answer. While it is open, only that of its trial counts."""
        if self.failures < FAILURES:
            self.failures += 1
            if self.failures < FAILURES:
                return
            self._opened, self.why = now, f"{FAILURES} calls in a row had no answer"
        elif trial is None or trial is not self._trial:
            return
        self._trial = None
        self._until = now + self._pause
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    # --- health checks
    def is_unresponsive(self) -> bool:
        """Tell whether health checks have no answer."""
        return self._until == inf

    def answered(self, now: float) -> None:
        """Note that a health check was answered.

        One that calls have opened is for a call to close: it may be alive and fail them. Where none has come for long
        it closes on probation, and the next call that fails opens it again.
        """
        silent, self._silent = self._silent, 0
        if self.is_unresponsive():
            self._close()
        elif self.failures < FAILURES:
            self.failures = max(0, self.failures - silent)
        elif now >= self._until + LONGEST_PAUSE and self._trial is None:
            self.failures = FAILURES - 1

    def unanswered(self, now: float, why: str) -> None:
        """Note that a health check was not answered; `why` is for people."""
        self._silent += 1
        if self._silent < SILENT:
            self.failed(now)
            return
        if not self.is_unresponsive():
            self._opened, self._until, self._trial, self.failures = now, inf, None, FAILURES
        self.why = why

    # --- what is told of it
    def state(self, now: float) -> State:
        """Return its state, for people."""
        if self.failures < FAILURES:
            return "closed"
        return "half-open" if self._trial is not None or now >= self._until else "open"

    def open_seconds(self, now: float) -> float:
        """Return for how many seconds it has been open, if it is."""
        return now - self._opened

    def opens_in(self, now: float) -> float:
        """Return the seconds until a request may be tried."""
        if self.failures < FAILURES:
            return 0.0
        if self.is_unresponsive():
            return again_seconds(now - self._opened)
        return max(0.0, self._until - now)

    def _close(self) -> None:
        self.failures, self._silent, self._until, self._pause, self._trial = 0, 0, 0.0, FIRST_PAUSE, None
