"""How many calls run at once and how many can wait, shared fairly by models and callers.

Otherwise a model that hangs would hold every slot until its calls time out, and so would one caller with many calls. So
a model or caller gets no further slot while it has more than a multiple of the free ones. One alone gets most of them,
several share, and some are always left for the next.
Dynamic thresholds: Choudhury and Hahne, IEEE/ACM TON 6(2), 1998.
"""

import asyncio
import mmap
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

BULK_BYTES = 64 * 1024  # After so many bytes at once, others have their turn before more of the connection is read.
FIRST_BYTES = 4096  # Bytes that are read of an unauthenticated connection before others have their turn.
CUT_SECONDS = 2.0
"""Seconds for which a call that ends before its response still counts towards its caller's slots.

HTTP/1.1 has no way to cancel: a replica works on a request although its connection is closed (Triton:
triton-inference-server/server, issue 7077). A caller that keeps calling and leaving would otherwise have far more calls
there than slots."""
WAITING_FOR_EACH = 4  # Calls that can wait, for each that runs.
TIMES_FREE = 3
"""A model that has so many times the free slots, or places in the queue, gets no more. So one alone has at most three
quarters of them."""
TIMES_FREE_FOR_CALLERS = 7
"""The same factor for callers. One gets at most seven eighths, so that one whose model hangs can call others."""


class ReceiveBuffer:
    """A loop's receive buffer, copied before the next read. Slices of a map are bytes, without a memoryview."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 256 * 1024)
        self.whole = memoryview(self.map)
        self.bulk = self.whole[:BULK_BYTES]
        self.first = self.whole[:FIRST_BYTES]


_rooms = threading.local()


def room() -> ReceiveBuffer:
    """Return the buffer of this thread's loop."""
    if not hasattr(_rooms, "room"):
        _rooms.room = ReceiveBuffer()
    found: ReceiveBuffer = _rooms.room
    return found


class Waiter(Protocol):
    """A call that waits for a slot."""

    def admitted(self) -> None:
        """Continue, because the call has its slot now."""


_NUMBERS = count()


class InFlightCount:
    """Calls of one model, or of one caller, that hold slots, and bytes that the caller holds (`memory`)."""

    __slots__ = ("__weakref__", "_streams", "calls", "cut", "held", "number")

    def __init__(self) -> None:
        self.number = next(_NUMBERS)  # Spreads callers over shared resources.
        self.calls = 0
        self.cut = 0  # Ended calls of the caller that a replica may still work on.
        self.held = 0
        self._streams: InFlightCount | None = None

    @property
    def streams(self) -> "InFlightCount":
        """Calls of gRPC streams in flight. Streams have separate slots."""
        if self._streams is None:
            self._streams = InFlightCount()
        return self._streams


class ConcurrencyLimiter:
    """Bounded slots with a bounded queue, served in turn by model and caller, in order within each."""

    __slots__ = ("_admitting", "_cut_seconds", "_queues", "in_flight", "limit", "waiting")

    def __init__(self, limit: int, cut_seconds: float = CUT_SECONDS) -> None:
        self.limit = limit
        self._cut_seconds = cut_seconds
        self.in_flight = 0
        self.waiting = 0  # Calls in the queue.
        self._queues: dict[tuple[InFlightCount, InFlightCount], deque[Waiter]] = {}
        self._admitting = False

    def try_acquire(self, model: InFlightCount, caller: InFlightCount) -> bool:
        """Take a slot, if there is one for this model and this caller. Return whether there was."""
        cut = caller.cut
        free = self.limit - self.in_flight - cut
        if model.calls < free * TIMES_FREE and caller.calls + cut < free * TIMES_FREE_FOR_CALLERS:
            self.in_flight += 1
            model.calls += 1
            caller.calls += 1
            return True
        return False

    def enqueue(self, waiter: Waiter, model: InFlightCount, caller: InFlightCount, due: bool = False) -> bool:
        """Queue a call until it is `admitted`. Return False if the queue is too long. A call that is `due` has already
        waited elsewhere, among a bounded number, and is never refused."""
        queue = self._queues.get((model, caller))
        before = 0 if queue is None else len(queue)
        if before >= (self.limit * WAITING_FOR_EACH - self.waiting) * TIMES_FREE and not due:
            return False
        if queue is None:
            queue = self._queues[model, caller] = deque()
        queue.append(waiter)
        self.waiting += 1
        return True

    def cancel(self, waiter: Waiter, model: InFlightCount, caller: InFlightCount) -> None:
        queue = self._queues[model, caller]
        queue.remove(waiter)
        self.waiting -= 1
        if not queue:
            del self._queues[model, caller]

    def release(self, model: InFlightCount, caller: InFlightCount) -> None:
        """Give a slot to the next waiting call that can have it."""
        model.calls -= 1
        caller.calls -= 1
        self.in_flight -= 1
        if self._queues:
            self._admit()

    def cut(self, model: InFlightCount, caller: InFlightCount) -> None:
        """Give a slot back whose call a replica may still work on: to others at once, to its caller later."""
        caller.cut += 1
        self.release(model, caller)
        asyncio.get_running_loop().call_later(self._cut_seconds, self._uncut, caller)

    def _uncut(self, caller: InFlightCount) -> None:
        caller.cut -= 1
        self._admit()

    def _admit(self) -> None:
        if self._admitting:
            return
        self._admitting = True  # a call can end as it is admitted: its slot is passed on here too, without recursion
        try:
            while (pair := next((pair for pair in self._queues if self.try_acquire(*pair)), None)) is not None:
                queue = self._queues.pop(pair)
                waiter = queue.popleft()
                self.waiting -= 1
                if queue:
                    self._queues[pair] = queue  # behind the others
                waiter.admitted()
        finally:
            self._admitting = False


class RoundRobin:
    """Does long work in small steps: some in each turn of the loop, in turn by owner."""

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._steps: dict[object, deque[Callable[[], None]]] = {}  # The next owner is first.
        self._goes_on = False

    def add(self, whose: object, step: Callable[[], None]) -> None:
        self._steps.setdefault(whose, deque()).append(step)
        if not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._next)

    async def turn(self, whose: object) -> None:
        turn = asyncio.Event()
        self.add(whose, turn.set)
        await turn.wait()

    def _next(self) -> None:
        try:
            for _ in range(self._at_once):
                if self._steps:
                    self._take_step()
        finally:
            self._goes_on = bool(self._steps)
            if self._goes_on:
                asyncio.get_running_loop().call_soon(self._next)

    def _take_step(self) -> None:
        whose = next(iter(self._steps))
        steps = self._steps.pop(whose)
        step = steps.popleft()
        if steps:
            self._steps[whose] = steps  # behind the others
        step()  # it may add another
