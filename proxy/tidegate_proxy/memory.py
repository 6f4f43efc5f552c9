"""The memory that callers can make the proxy hold: one limit in bytes, a share of the memory of the process.

Data that passes through at once does not count. Data that waits counts: connections, heads of undecided calls, bodies
(incomplete, decompressed or waiting for a replica), and responses that callers do not read.

One part is for unauthenticated callers, counted by connection. One connection has at most an eighth of it. If the part
is full, the proxy closes the connection that has been unauthenticated for longest. A caller that authenticates stays.

The rest is for authenticated callers, counted by principal. As with slots (`concurrency`), a caller gets no more while
it has a multiple of the free memory, so some is left for others. An eighth is reserved for callers that have little.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Protocol

from .problems import AGAIN_SECONDS, Problem, ProblemType

SHARE = 4
"""Callers can make the proxy hold a quarter of its memory. With Python's overhead, that stays below half of it."""
OF_STRANGERS = 4  # A quarter of that is for unauthenticated callers.
OF_ONE_STRANGER = 8  # One unauthenticated connection has at most an eighth of their part.
OF_CALLERS_WITH_LITTLE = 8  # An eighth of the rest is for callers who have little.
LITTLE = 336  # That is 292 KiB of 96 MiB: three connections over TLS, and a short call.
TIMES_FREE = 6  # Other callers get no more while they have so many times the free memory: one alone gets at most 3/4.
UNPACKER_BYTES = 48 * 1024  # Memory for decompressing a body, in addition to the decompressed bytes.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def process_memory() -> int:
    """Return the memory limit of the process in bytes: its container's (cgroup v2, v1), or all of the machine."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _LIMITS:
        try:
            return min(machine, int(file.read_text()))
        except (OSError, ValueError):  # there is no such file, or it contains `max`
            continue
    return machine


class MemoryOwner(Protocol):
    """The owner of counted bytes: a principal, or a connection that is not authenticated."""

    held: int


class Budget:
    """Bytes of authenticated callers, by principal."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    @property
    def most(self) -> int:
        """Bytes that one holder can have if no other has any."""
        return (self.limit - self.limit // OF_CALLERS_WITH_LITTLE) * TIMES_FREE // (TIMES_FREE + 1)

    def take(self, holder: MemoryOwner, size: int) -> bool:
        """Take bytes for a holder. Return whether the budget allowed it. A negative size gives bytes back."""
        if size > 0 and not self._is_room(holder, size):
            return False
        holder.held += size
        self.held += size
        return True

    def _is_room(self, holder: MemoryOwner, size: int) -> bool:
        most, free = holder.held + size, self.limit - self.held - size
        if most <= self.limit // LITTLE:
            return free >= 0
        return most <= (free - self.limit // OF_CALLERS_WITH_LITTLE) * TIMES_FREE


class Stranger(MemoryOwner, Protocol):
    """An unauthenticated connection, which the proxy can close to free memory for others."""

    is_unknown: bool

    def evict(self) -> None:
        """Close the connection, because its memory is needed."""


class UnauthenticatedBudget(Budget):
    """Bytes of unauthenticated callers, by connection."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.connections: dict[Stranger, None] = {}  # The longest unauthenticated connection is first.

    @property
    def most(self) -> int:
        """Bytes that one connection can have."""
        return self.limit // OF_ONE_STRANGER

    def _is_room(self, holder: MemoryOwner, size: int) -> bool:
        if holder.held + size > self.most:
            return False
        while self.held + size > self.limit:
            others = (each for each in self.connections if each is not holder)
            oldest = next((each for each in others if each.is_unknown or each.held), None)
            if oldest is None:
                return False
            oldest.evict()
        return True


class Memory:
    """The two budgets of one proxy."""

    def __init__(self, whole: int) -> None:
        limit = whole // SHARE
        self.whole = whole
        self.strangers = UnauthenticatedBudget(limit // OF_STRANGERS)
        self.callers = Budget(limit - limit // OF_STRANGERS)
        self.cut = Counter(dict.fromkeys(("room", "held", "answer", "chatter"), 0))
        """Ended `room`: unauthenticated connections, to free memory. `held`: connections that hold too much. `answer`:
        calls whose callers do not read the response. `chatter`: connections that send too much without effect."""

    def count_cut(self, of: str) -> None:
        """Count something valid that was ended so that others can go on."""
        self.cut[of] += 1


def full() -> Problem:
    """Return the problem of a call that would exceed the memory for callers."""
    why = "The proxy's buffer limit is reached. Send smaller or fewer requests, read responses faster, or retry later."
    return Problem(ProblemType.FULL, why, AGAIN_SECONDS)


class Reservation:
    """The bytes that one connection, request or call holds."""

    __slots__ = ("budget", "holder", "size")

    def __init__(self, budget: Budget, holder: MemoryOwner) -> None:
        self.budget = budget
        self.holder = holder
        self.size = 0

    def set(self, size: int) -> None:
        """Hold so many bytes from now on. Raises Problem and then changes nothing."""
        if size != self.size and not self.budget.take(self.holder, size - self.size):
            if size > (most := self.budget.most):
                raise Problem(ProblemType.TOO_LONG, f"The request needs too much memory: the limit is {most} bytes.")
            raise full()
        self.size = size

    def move(self, budget: Budget, holder: MemoryOwner) -> None:
        """Move the bytes to another budget and holder. Raises Problem and then changes nothing."""
        size, before = self.size, (self.budget, self.holder)
        self.set(0)
        self.budget, self.holder = budget, holder
        try:
            self.set(size)
        except Problem:
            self.budget, self.holder = before
            self.set(size)
            raise

    def end(self) -> None:
        """Give all bytes back. Later bookings no longer count."""
        self.budget.take(self.holder, -self.size)
        self.size, self.budget, self.holder = 0, _NOWHERE, _NO_HOLDER


class _NoHolder:
    held = 0


_NOWHERE, _NO_HOLDER = Budget(sys.maxsize), _NoHolder()
