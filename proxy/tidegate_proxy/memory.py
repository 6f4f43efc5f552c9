"""What callers make the proxy hold: one bound in bytes for the whole process, a share of the memory that it may take.

What passes through at once is not counted, only what stays while something is waited for: connections, heads of calls
that are not decided, bodies that must be whole or wait for a replica, unpacked bodies, answers that nobody takes.

A part is for strangers, of whom it is not known who they are, counted by connection. One has at most an eighth of it,
and where it is full, the connection that has been a stranger's the longest is ended: the next one finds room, and who
says who he is stays. The rest is for callers, counted by principal: none gets more while it has a multiple of what is
free, so that some is left for others, as with slots (`concurrency`). An eighth is for those who have little, however
many have much.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Protocol

from .problems import AGAIN_SECONDS, Problem, ProblemType

SHARE = 4
"""Callers may make the proxy hold a quarter of its memory: half of it is never reached, with all that Python adds."""
OF_STRANGERS = 4  # A quarter of that is for strangers.
OF_ONE_STRANGER = 8  # One connection of theirs has at most an eighth of their part.
OF_CALLERS_WITH_LITTLE = 8  # An eighth of the rest is for callers who have little, …
LITTLE = 336  # … which is 292 KiB of 96 MiB: three connections over TLS, and a short call.
TIMES_FREE = 6  # No other gets more while it has so many times what else is free: one alone has at most three quarters.
UNPACKER_BYTES = 48 * 1024  # What unpacking a compressed body needs, besides what it makes.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def process_memory() -> int:
    """Return the bytes that the process may take: its container's limit (cgroup v2, v1), or else all of the machine."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _LIMITS:
        try:
            return min(machine, int(file.read_text()))
        except (OSError, ValueError):  # there is none, or it says `max`
            continue
    return machine


class MemoryOwner(Protocol):
    """Whom bytes are counted for: a principal, or a connection of which it is not known whose it is."""

    held: int


class Budget:
    """Bytes of callers, by principal."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    @property
    def most(self) -> int:
        """Bytes that one holder has when nobody else has any."""
        return (self.limit - self.limit // OF_CALLERS_WITH_LITTLE) * TIMES_FREE // (TIMES_FREE + 1)

    def take(self, holder: MemoryOwner, size: int) -> bool:
        """Take bytes for a holder, if there are any for it; return whether there were. A negative size gives back."""
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
    """A connection that may have to make room for others."""

    is_unknown: bool

    def evict(self) -> None:
        """End it: there is no room for it any more."""


class UnauthenticatedBudget(Budget):
    """Bytes of strangers, by connection."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.connections: dict[Stranger, None] = {}  # First the one that has been a stranger's the longest.

    @property
    def most(self) -> int:
        """Bytes that one connection has at most."""
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
    """What callers may make one proxy hold, in its two parts."""

    def __init__(self, whole: int) -> None:
        limit = whole // SHARE
        self.whole = whole
        self.strangers = UnauthenticatedBudget(limit // OF_STRANGERS)
        self.callers = Budget(limit - limit // OF_STRANGERS)
        self.cut = Counter(dict.fromkeys(("room", "held", "answer", "chatter"), 0))
        """Of `room`: connections of strangers that made room; `held`: connections ended for what they hold; `answer`:
        calls whose answers their callers do not take; `chatter`: connections that sent too much that moves nothing."""

    def count_cut(self, of: str) -> None:
        """Count what is ended, though nothing is wrong with it, so that others go on."""
        self.cut[of] += 1


def full() -> Problem:
    """Return what is told to who would make the proxy hold more than it may."""
    why = "The proxy holds as much as it may, for you or for all: send less at once, take your answers, or come again."
    return Problem(ProblemType.FULL, why, AGAIN_SECONDS)


class Reservation:
    """What one connection, request or call holds."""

    __slots__ = ("budget", "holder", "size")

    def __init__(self, budget: Budget, holder: MemoryOwner) -> None:
        self.budget = budget
        self.holder = holder
        self.size = 0

    def set(self, size: int) -> None:
        """Hold so many bytes from now on; raises Problem, and then it holds what it held."""
        if not self.budget.take(self.holder, size - self.size):
            if size > (most := self.budget.most):
                raise Problem(ProblemType.TOO_LONG, f"What must be held at once may have {most} bytes here.")
            raise full()
        self.size = size

    def move(self, budget: Budget, holder: MemoryOwner) -> None:
        """Hold the same for another; raises Problem, and then it holds what it held."""
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
        """Hold nothing: what is still booked is not counted any more."""
        self.set(0)
        self.budget, self.holder = _NOWHERE, _NOBODY


class _Nobody:
    held = 0


_NOWHERE, _NOBODY = Budget(sys.maxsize), _Nobody()
