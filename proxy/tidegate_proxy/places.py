"""How many requests a proxy works on at once, and how many may wait for that: shared fairly by models and callers.

A model that hangs would otherwise hold every place until its callers' time is up, and so would one caller who asks
for much. So nobody gets a further place who already has more than a multiple of those that are free: whoever is alone
has most of them, several share, and some are always left for whoever comes next.
Dynamic thresholds: Choudhury and Hahne, IEEE/ACM TON 6(2), 1998.
"""

from collections import deque
from typing import Protocol

WAITING_FOR_EACH = 4
"""Requests that may wait, for each that is worked on."""
TIMES_FREE = 3
"""No model gets a further place, or one in line, that has so many times those that are free: one alone has at most
three quarters of them."""
TIMES_FREE_FOR_CALLERS = 7
"""The same of callers, who have seven eighths: whose one model hangs can still call others."""


class Waiting(Protocol):
    """Who waits for a place."""

    def placed(self) -> None:
        """Learn that there is a place now, which is taken."""


class Tally:
    """The places that one model, or one caller, has taken."""

    __slots__ = ("__weakref__", "_streams", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self._streams: Tally | None = None

    @property
    def streams(self) -> "Tally":
        """The same of gRPC streams, which have places of their own."""
        if self._streams is None:
            self._streams = Tally()
        return self._streams


class Room:
    """Bytes that may be held at once."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int) -> bool:
        """Take so many, if there are."""
        if size > self.left:
            return False
        self.left -= size
        return True

    def give(self, size: int) -> None:
        """Give so many back."""
        self.left += size


class Places:
    """Bounded places, and a bounded line of those who wait: in turn by model and caller, in order within each."""

    __slots__ = ("_line", "_passing", "limit", "taken", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self.waiting = 0
        """How many wait."""
        self._line: dict[tuple[Tally, Tally], deque[Waiting]] = {}
        self._passing = False

    def take(self, model: Tally, caller: Tally) -> bool:
        """Take a place, if there is one for this model and this caller."""
        free = self.limit - self.taken
        if model.taken < free * TIMES_FREE and caller.taken < free * TIMES_FREE_FOR_CALLERS:
            self.taken += 1
            model.taken += 1
            caller.taken += 1
            return True
        return False

    def wait(self, who: Waiting, model: Tally, caller: Tally, due: bool = False) -> bool:
        """Stand in line, if it is not too long; `who.placed` is called when it is their turn.

        Who is `due` has waited elsewhere, among a bounded number, and is not sent away.
        """
        line = self._line.get((model, caller))
        before = 0 if line is None else len(line)
        if before >= (self.limit * WAITING_FOR_EACH - self.waiting) * TIMES_FREE and not due:
            return False
        if line is None:
            line = self._line[model, caller] = deque()
        line.append(who)
        self.waiting += 1
        return True

    def leave_line(self, who: Waiting, model: Tally, caller: Tally) -> None:
        """Wait no more."""
        line = self._line[model, caller]
        line.remove(who)
        self.waiting -= 1
        if not line:
            del self._line[model, caller]

    def leave(self, model: Tally, caller: Tally) -> None:
        """Give a place back: to the next in line who may have it."""
        model.taken -= 1
        caller.taken -= 1
        self.taken -= 1
        if self._line and not self._passing:
            self._pass_on()

    def _pass_on(self) -> None:
        self._passing = True  # who is placed may leave at once: that place is passed on here too, not further down
        try:
            while (pair := next((pair for pair in self._line if self.take(*pair)), None)) is not None:
                line = self._line.pop(pair)
                who = line.popleft()
                self.waiting -= 1
                if line:
                    self._line[pair] = line  # behind the others
                who.placed()
        finally:
            self._passing = False
