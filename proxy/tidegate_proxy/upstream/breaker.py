"""A circuit breaker: stops requests to a failing replica, and lets one through to find out whether it has recovered."""

from dataclasses import dataclass
from math import inf
from typing import Literal

State = Literal["closed", "open", "half-open"]
FAILURES = 5  # Consecutive failures that open the breaker.
SILENT = 2  # Consecutive failed health checks that open the breaker, unless a call succeeded in between.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""How long the breaker stays open. The time doubles up to LONGEST_PAUSE until a call succeeds."""


def again_seconds(away: float) -> float:
    """Return when to retry something that has been unavailable for `away` seconds. A caller that obeys each time is
    late by at most one second or a quarter of the outage."""
    return min(LONGEST_PAUSE, max(FIRST_PAUSE, away / 4))


@dataclass(slots=True, eq=False)
class Trial:
    """The one request that tests an open breaker's replica. No other request opens or closes the breaker."""

    _breaker: "Breaker"

    def given_up(self) -> None:
        """Let another request try, because this one ended without an outcome, for example if its caller left."""
        self._breaker.release(self)


class Breaker:
    """The circuit breaker of one replica: opens after consecutive failures, then lets one trial through. Failed health
    checks take precedence: they keep the breaker open until a check succeeds. `now` is monotonic."""

    __slots__ = ("_opened", "_pause", "_silent", "_trial", "_until", "failures", "why")

    def __init__(self) -> None:
        self.failures = 0  # Consecutive failures. While it is 0, callers of this class can skip all its methods.
        self.why = ""  # Why the breaker was last opened, as text for people.
        self._opened = 0.0
        self._pause = FIRST_PAUSE
        self._silent = 0
        self._until = 0.0  # Infinite while health checks fail.
        self._trial: Trial | None = None

    def allows(self, now: float) -> bool:
        """Return whether a request may be sent. While a trial is in flight, no other request may."""
        return self.failures < FAILURES or (now >= self._until and self._trial is None)

    def claim(self, now: float) -> Trial | None:
        """Return a trial if the request that is sent now must be one, else None."""
        if self.failures < FAILURES or now < self._until or self._trial is not None:
            return None
        self._trial = Trial(self)
        return self._trial

    def release(self, trial: Trial) -> None:
        """Note that a trial ended without an outcome, if it is the one in flight."""
        if trial is self._trial:
            self._trial = None

    def succeeded(self, trial: Trial | None = None) -> None:
        """Count a response, whatever its status. While the breaker is open, only its trial counts."""
        if self.failures and (self.failures < FAILURES or (trial is not None and trial is self._trial)):
            self._close()

    def failed(self, now: float, trial: Trial | None = None) -> None:
        """Count a request without a response. While the breaker is open, only its trial counts."""
        if self.failures < FAILURES:
            self.failures += 1
            if self.failures < FAILURES:
                return
            self._opened, self.why = now, f"{FAILURES} consecutive calls had no response"
        elif trial is None or trial is not self._trial:
            return
        self._trial = None
        self._until = now + self._pause
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def is_unresponsive(self) -> bool:
        """Return whether health checks fail."""
        return self._until == inf

    def answered(self, now: float) -> None:
        """Count a successful health check. It cannot close a breaker that calls have opened, because a live replica can
        fail calls. Without calls it closes on probation after a while: the next failed call opens it."""
        silent, self._silent = self._silent, 0
        if self.is_unresponsive():
            self._close()
        elif self.failures < FAILURES:
            self.failures = max(0, self.failures - silent)
        elif now >= self._until + LONGEST_PAUSE and self._trial is None:
            self.failures = FAILURES - 1

    def unanswered(self, now: float, why: str) -> None:
        """Count a failed health check. `why` is text for people."""
        self._silent += 1
        if self._silent < SILENT:
            self.failed(now)
            return
        if not self.is_unresponsive():
            self._opened, self._until, self._trial, self.failures = now, inf, None, FAILURES
        self.why = why

    def state(self, now: float) -> State:
        if self.failures < FAILURES:
            return "closed"
        return "half-open" if self._trial is not None or now >= self._until else "open"

    def open_seconds(self, now: float) -> float:
        """Return for how many seconds the breaker has been open, if it is open."""
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
