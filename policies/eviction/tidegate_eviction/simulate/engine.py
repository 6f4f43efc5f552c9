"""Simulated time: the requests of a trace against the container's own core, with proxies and the server simulated.

The clock jumps from one event to the next: a request finds no lease, a load or an unload ends, memory is back, leases
are renewed or given back, or the core's own deadline has come. Requests between two events that find a lease change
nothing but what the lease counts.
"""

import heapq
from collections.abc import Callable, Sequence

from tidegate_contracts import lease
from tidegate_contracts.placement import NotNow, next_ask, ranked

from .replica import Answer, HeldLease, SimulatedReplica
from .setting import FOR_EVER, SimulationSetting
from .trace import Outcome, Trace, shown

__all__ = ["Simulation", "SimulationSetting", "simulate"]
BLOCKS = 100  # Parts of a trace, after each of which it may be told how far the simulation is.


class Simulation:
    """One run over a trace: a clock, and a replica or several."""

    def __init__(self, trace: Trace, setting: SimulationSetting, names: Sequence[str] = ()) -> None:
        self._trace, self._setting = trace, setting
        self.now = 0.0
        self.holders = tuple(f"proxy-{number}" for number in range(setting.holders))
        self._happening: list[tuple[float, float, int, Callable[[], object]]] = []
        self._count = 0
        self._outcome = Outcome(wait_seconds=setting.wait_seconds)
        self._held: dict[str, list[HeldLease | None]] = {holder: [None] * len(trace.models) for holder in self.holders}
        """By proxy and model: the lease under which a request begins."""
        self._ranks: list[list[SimulatedReplica]] = []
        replicas = {
            name: SimulatedReplica(name, trace, setting, self, self._outcome)
            for name in names or map(str, range(setting.replicas))
        }
        self._replicas = list(replicas.values())
        self._ranks = [[replicas[name] for name in ranked(model.name, replicas)] for model in trace.models]

    def run(self) -> Outcome:
        """Simulate every request, and what follows from them."""
        trace, many, tables = self._trace, len(self.holders), list(self._held.values())
        size = max(1, len(trace) // BLOCKS)
        begins = range(0, len(trace), size)
        for begin in shown(begins, self._setting.policy.name, len(begins)):
            warm, due = begin, self._due()
            block = zip(trace.seconds[begin : begin + size], trace.which[begin : begin + size], strict=True)
            for position, (seconds, which) in enumerate(block, begin):
                if seconds >= due:
                    self._until(seconds)
                    due = self._due()
                if (held := tables[position % many][which]) is not None:
                    held.until = seconds + held.warm_seconds
                    held.requests += 1
                    continue
                self.now = seconds
                self._outcome.warm(trace, warm, position)
                warm = position + 1
                self._ask(position, which)
                due = self._due()
            self._outcome.warm(trace, warm, min(begin + size, len(trace)))
        self._until(FOR_EVER)
        return self._outcome

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Have something happen in so many seconds."""
        self.at(self.now + seconds, what, self.now)

    def at(self, when: float, what: Callable[[], object], since: float) -> None:
        """Have something happen at a time, after what is to happen then and was known earlier than `since`."""
        self._count += 1
        heapq.heappush(self._happening, (when, since, self._count, what))

    def lease_changed(self, which: int, holder: str) -> None:
        """Take note that a proxy has got a lease, or may begin no more requests under one."""
        found = None
        for replica in self._ranks[which]:
            if (found := replica.held_lease(which, holder)) is not None:
                break
        self._held[holder][which] = found

    def refused(self, _position: int, _which: int, _why: NotNow) -> None:
        """Count a request that is told to come again, and does not."""
        self._outcome.busy += 1

    def _due(self) -> float:
        """Return when something happens next."""
        due = min(replica.deadline for replica in self._replicas)
        return min(due, self._happening[0][0]) if self._happening else due

    def _until(self, end: float) -> None:
        """Go on to a time; after the last request, until no request waits and nothing is loaded."""
        while end < FOR_EVER or any(replica.unfinished for replica in self._replicas):
            due = min(replica.deadline for replica in self._replicas)
            happens = self._happening[0][0] if self._happening else FOR_EVER
            first = min(due, happens)
            if first > end or first >= FOR_EVER:
                return
            self.now = max(self.now, first)
            if happens <= due:
                heapq.heappop(self._happening)[-1]()
                continue
            for replica in self._replicas:
                if replica.deadline <= self.now:
                    replica.tick()

    def _ask(self, position: int, which: int) -> None:
        """Be a request without a lease: have its proxy ask around for one as proxies do."""
        outcome, asked, holder = self._outcome, self.now, self.holders[position % len(self.holders)]
        outcome.requests += 1
        candidates = sorted(self._ranks[which], key=lambda replica: not replica.is_warm(which, holder))
        refusals: list[NotNow] = []

        def ask() -> None:
            if (found := next_ask(len(candidates), refusals)) is None:
                self.refused(position, which, min(refusals))
                return
            number, room_seconds = found
            replica = candidates[number]

            def told(answer: Answer, at_once: bool) -> None:
                if isinstance(answer, lease.Granted):
                    outcome.started(position, self.now, self.now - asked, hit=at_once)
                    replica.work(which, holder)
                elif isinstance(answer, lease.Busy):
                    refusals.append(NotNow(False, answer.retry_after, answer.why, answer.reason or ""))
                    ask()
                else:
                    outcome.too_large += 1

            replica.acquire(which, holder, room_seconds, told)

        ask()


def simulate(trace: Trace, setting: SimulationSetting) -> Outcome:
    """Return what comes of this trace with this setting."""
    return Simulation(trace, setting).run()
