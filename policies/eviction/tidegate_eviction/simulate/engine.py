"""Simulated time: requests of a trace against the container's own core, with proxies and Triton played.

Nothing is decided here. The clock jumps from one thing that happens to the next: a request comes, a request ends, a
load or an unload ends, memory is back, leases are renewed, or the core said that it wants to be asked again.
"""

import hashlib
import heapq
from collections.abc import Callable

from .outcome import Outcome
from .replica import FOR_EVER, Replica
from .setting import Setting
from .trace import Trace

Progress = Callable[[int, int], None]


class Engine:
    """One run over a trace: a clock, and a replica or several."""

    def __init__(self, trace: Trace, setting: Setting) -> None:
        self._trace = trace
        self.now = 0.0
        self._happening: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._outcome = Outcome()
        self._replicas = [
            Replica(str(number), trace, setting, self, self._outcome) for number in range(setting.replicas)
        ]
        self._ranks = [self._ranked(model.name) for model in trace.models]

    def run(self, progress: Progress | None = None) -> Outcome:
        """Play every request, and what follows from them; return what came of it."""
        total = len(self._trace)
        for position, (seconds, which) in enumerate(self._trace.requests()):
            self._until(seconds)
            self.now = seconds
            self._ask(position, which)
            if progress and position % 500 == 0:
                progress(position, total)
        self._until(FOR_EVER)
        return self._outcome

    @property
    def events(self) -> int:
        """What has happened or is to: requests, and all that followed from them."""
        return self._outcome.requests + self._count

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Have something happen in so many seconds."""
        self._count += 1
        heapq.heappush(self._happening, (self.now + seconds, self._count, what))

    def _until(self, end: float) -> None:
        """Let happen all that is due by then; after the last request, only until nobody waits for anything."""
        while end < FOR_EVER or any(replica.unfinished for replica in self._replicas):
            due = min(replica.deadline for replica in self._replicas)
            happens = self._happening[0][0] if self._happening else FOR_EVER
            first = min(due, happens)
            if first > end or first >= FOR_EVER:
                return
            self.now = max(self.now, first)
            if happens <= due:
                heapq.heappop(self._happening)[2]()
                continue
            for replica in self._replicas:
                if replica.deadline <= self.now:
                    replica.tick()

    def _ask(self, position: int, which: int) -> None:
        """Ask the replicas in their order, those first that have the model; the last one's refusal counts."""
        self._outcome.requests += 1
        ranked = self._ranks[which]
        if len(ranked) > 1:
            ranked = sorted(ranked, key=lambda replica: not replica.has(which))
        for replica in ranked[:-1]:
            if replica.ask(position, which, last=False):
                return
        ranked[-1].ask(position, which, last=True)

    def _ranked(self, model: str) -> list[Replica]:
        """Return the replicas in the order of rendezvous hashing (Thaler and Ravishankar 1998)."""

        def weight(replica: Replica) -> bytes:
            return hashlib.blake2b(f"{replica.name}\0{model}".encode(), digest_size=8).digest()

        return sorted(self._replicas, key=weight, reverse=True)


def simulate(trace: Trace, setting: Setting, progress: Progress | None = None) -> Outcome:
    """Return what comes of this trace with this setting."""
    return Engine(trace, setting).run(progress)
