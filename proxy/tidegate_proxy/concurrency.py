"""How many calls are worked on at once, and how many may wait for that: shared fairly by models and callers.

A model that hangs would otherwise hold every slot until its callers' time is up, and so would one caller that asks for
much. So a model or caller gets no further slot while it has more than a multiple of those that are free: one alone has
most of them, several share, and some are always left for the next.
Dynamic thresholds: Choudhury and Hahne, IEEE/ACM TON 6(2), 1998.
"""

import asyncio
import mmap
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

BULK_BYTES = 64 * 1024  # Where so many have come at once, others have their turn before more is read of a connection.
FIRST_BYTES = 4096  # Bytes that are read of a stranger before others have their turn.
CUT_SECONDS = 2.0
"""Seconds for which a call that ends before its answer keeps its slot from its caller. HTTP/1.1 has no way to cancel: a
replica takes the request off its closed connection and works on it (Triton: triton-inference-server/server, issue
7077). A caller who asks and leaves, over and over, would have far more calls there than slots."""
WAITING_FOR_EACH = 4  # Calls that may wait, for each that is worked on.
TIMES_FREE = 3
"""No model gets a further slot, or place in the queue, that has so many times those that are free: one alone has at
most three quarters of them."""
TIMES_FREE_FOR_CALLERS = 7
"""The same factor for callers: a caller gets seven eighths at most, so that one whose model hangs can call others."""


class ReceiveBuffer:
    """What a loop reads into; it copies what came before it reads anything else.

    A slice of a map is bytes, without a memoryview to be made on the way.
    """

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 256 * 1024)
        self.whole = memoryview(self.map)
        self.bulk = self.whole[:BULK_BYTES]
        self.first = self.whole[:FIRST_BYTES]


_rooms = threading.local()


def room() -> ReceiveBuffer:
    """Return the one of this thread's loop."""
    if not hasattr(_rooms, "room"):
        _rooms.room = ReceiveBuffer()
    found: ReceiveBuffer = _rooms.room
    return found


class Waiter(Protocol):
    """A call that waits for a slot."""

    def admitted(self) -> None:
        """Go on: the call has its slot now."""


_NUMBERS = count()


class InFlightCount:
    """How many calls of one model, or of one caller, hold slots; and how many bytes the caller holds (`memory`)."""

    __slots__ = ("__weakref__", "_streams", "calls", "cut", "held", "number")

    def __init__(self) -> None:
        self.number = next(_NUMBERS)  # Spreads callers over what they share.
        self.calls = 0
        self.cut = 0  # Calls of the caller that a replica may still be at, though they have ended.
        self.held = 0
        self._streams: InFlightCount | None = None

    @property
    def streams(self) -> "InFlightCount":
        """Calls of gRPC streams in flight; streams have their own slots."""
        if self._streams is None:
            self._streams = InFlightCount()
        return self._streams


class ConcurrencyLimiter:
    """Bounded slots, and a bounded queue for them: in turn by model and caller, in order within each."""

    __slots__ = ("_admitting", "_queues", "in_flight", "limit", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self.waiting = 0  # Calls in the queue.
        self._queues: dict[tuple[InFlightCount, InFlightCount], deque[Waiter]] = {}
        self._admitting = False

    def try_acquire(self, model: InFlightCount, caller: InFlightCount) -> bool:
        """Take a slot, if there is one for this model and this caller; return whether there was."""
        cut = caller.cut
        free = self.limit - self.in_flight - cut
        if model.calls < free * TIMES_FREE and caller.calls + cut < free * TIMES_FREE_FOR_CALLERS:
            self.in_flight += 1
            model.calls += 1
            caller.calls += 1
            return True
        return False

    def enqueue(self, waiter: Waiter, model: InFlightCount, caller: InFlightCount, due: bool = False) -> bool:
        """Let a call wait until it is `admitted`; return False where the queue is too long for that.

        A call that is `due` has waited elsewhere, among a bounded number, and is not sent away.
        """
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
        """Take a call out of the queue."""
        queue = self._queues[model, caller]
        queue.remove(waiter)
        self.waiting -= 1
        if not queue:
            del self._queues[model, caller]

    def release(self, model: InFlightCount, caller: InFlightCount) -> None:
        """Give a slot back: to the next waiting call that may have it."""
        model.calls -= 1
        caller.calls -= 1
        self.in_flight -= 1
        if self._queues:
            self._admit()

    def cut(self, model: InFlightCount, caller: InFlightCount) -> None:
        """Give a slot back whose call a replica may go on with: others have it at once, its caller a while later."""
        caller.cut += 1
        self.release(model, caller)
        asyncio.get_running_loop().call_later(CUT_SECONDS, self._uncut, caller)

    def _uncut(self, caller: InFlightCount) -> None:
        caller.cut -= 1
        self._admit()

    def _admit(self) -> None:
        if self._admitting:
            return
        self._admitting = True  # a call may end as it is admitted: its slot is passed on here too, not further down
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
    """Long work in small steps: some in each turn of the loop, by turns of those whose work it is."""

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._steps: dict[object, deque[Callable[[], None]]] = {}  # First those of whom it is the turn.
        self._goes_on = False

    def add(self, whose: object, step: Callable[[], None]) -> None:
        """Have a step done in its turn."""
        self._steps.setdefault(whose, deque()).append(step)
        if not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._next)

    async def turn(self, whose: object) -> None:
        """Wait for the turn to do a step."""
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
