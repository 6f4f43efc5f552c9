"""How many requests a proxy works on at once, and how many may wait for that."""

from collections import deque
from typing import Protocol

WAITING_FOR_EACH = 4
"""Requests that may wait, for each that is worked on."""


class Waiting(Protocol):
    """Who waits for a place."""

    def placed(self) -> None:
        """Learn that there is a place now, which is taken."""


class Places:
    """Bounded places, and a bounded line of those who wait, first come first served."""

    __slots__ = ("_line", "limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._line: deque[Waiting] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    def take(self) -> bool:
        """Take a place, if there is one."""
        if self.taken < self.limit:
            self.taken += 1
            return True
        return False

    def wait(self, who: Waiting) -> bool:
        """Stand in line, if it is not too long; `who.placed` is called when it is their turn."""
        if len(self._line) >= self.limit * WAITING_FOR_EACH:
            return False
        self._line.append(who)
        return True

    def leave_line(self, who: Waiting) -> None:
        """Wait no more."""
        self._line.remove(who)

    def leave(self) -> None:
        """Give a place back: to the next in line, if there is one."""
        if self._line:
            self._line.popleft().placed()
        else:
            self.taken -= 1
