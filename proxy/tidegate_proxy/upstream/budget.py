"""How many requests may be sent a second time: so few that retries never become a load of their own."""

SHARE = 0.1
"""Retries for each request that is sent."""
ALWAYS_A_SECOND = 1.0
"""Retries a second that are there for a pool with little to do."""
MOST = 100.0


class RetryBudget:
    """Of one pool (after Finagle's: a share of the requests, and a few in any case)."""

    __slots__ = ("_at", "_left", "refused")

    def __init__(self, now: float) -> None:
        self._left = 10.0
        self._at = now
        self.refused = 0

    def sent(self) -> None:
        """Count a request."""
        if self._left < MOST:
            self._left += SHARE

    def take(self, now: float) -> bool:
        """Take a retry; tell whether there was one."""
        self._left = min(MOST, self._left + (now - self._at) * ALWAYS_A_SECOND)
        self._at = now
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True
