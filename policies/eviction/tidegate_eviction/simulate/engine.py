"""Simulated time: the requests of a trace against the container's own core, with proxies and the server simulated.

Nothing is decided here. The clock jumps from one event to the next: a request comes or ends, a load or an unload ends,
memory is back, leases are renewed, or the core's own deadline has come.
"""

import hashlib
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidegate_contracts import lease

from ..core.messages import Answered, Evicted, Load, ModelSpec, PoolSettings, ServerInventory, Step, Ticket, Unload
from ..core.residency import Residency
from ..policies.policy import Candidate, Policy
from .trace import Outcome, Trace, shown


@dataclass(frozen=True, slots=True)
class SimulationSetting:
    """What is simulated, beside the requests: docs/simulator.md has it by the names of options. Times are seconds."""

    policy: Policy
    capacity_bytes: int
    idle_seconds: float = 0.0
    wait_seconds: float = 0.0
    replicas: int = 1
    holders: int = 1  # Proxies, which get requests in turn.
    lease_seconds: float = 0.0
    unload_seconds: float = 0.0
    freeing_seconds: float = 0.0
    residency_factor: float = 0.0
    loads_at_once: int = PoolSettings.loads_at_once
    instant: bool = False


FOR_EVER = 1e12  # Longer than any trace, in seconds.
ROUNDING = 1e-6  # What sums of seconds may be off by: room that comes at the last moment of a wait is no refusal.


@dataclass(slots=True)
class _Lease:
    """What a proxy knows of a lease that it holds."""

    until: float = 0.0
    requests: int = 0
    lost: bool = False  # No request may begin under it: it is released when the last one has ended.


class SimulatedReplica:
    """A server with its policy beside it, and the leases that proxies hold there."""

    def __init__(
        self, name: str, trace: Trace, setting: SimulationSetting, clock: "Simulation", outcome: Outcome
    ) -> None:
        self.name = name
        self.deadline = FOR_EVER
        self._models = trace.models
        self._which = {model.name: which for which, model in enumerate(trace.models)}
        self._setting, self._clock, self._outcome = setting, clock, outcome
        self._resident: set[int] = set()
        self._loading: set[int] = set()
        self._waiting: dict[Ticket, int] = {}  # By ticket: the request's position in the trace.
        self._leases: dict[str, dict[int, _Lease]] = {f"proxy-{number}": {} for number in range(setting.holders)}
        self._holders = list(self._leases)
        self._in_line: list[tuple[Ticket, int]] = []
        """Requests whose wait for room is over, but that may still wait for another load to end."""
        self._used_bytes = 0
        settings = _pool_settings(trace, setting)
        self._core = Residency(settings, "simulated", clock.now)
        specs = {model.name: ModelSpec(model.name, footprint_bytes=model.footprint_bytes) for model in trace.models}
        self._do(self._core.configure(settings, specs, (), clock.now))
        self._do(self._core.recover(ServerInventory(), clock.now))
        if setting.lease_seconds:
            self._renew()

    @property
    def unfinished(self) -> bool:
        """Whether a request waits, or a load is under way."""
        return bool(self._waiting or self._loading)

    def has(self, which: int) -> bool:
        """Whether the model is resident here, or is about to be."""
        return which in self._resident or which in self._loading

    def tick(self) -> None:
        """Have the core do what is due."""
        self._do(self._core.tick(self._clock.now))

    def ask(self, position: int, which: int, last: bool) -> bool:
        """Take a request; return whether it was taken. A refusal counts as one only at the `last` replica."""
        holder = self._holders[position % len(self._holders)]
        now = self._clock.now
        held = self._leases[holder].get(which)
        if held and not held.lost and self._setting.lease_seconds:
            held.requests += 1
            self._work(position, which, holder)
            return True
        step, answer = self._core.acquire(self._models[which].name, holder, None, now)
        if isinstance(answer, Ticket):
            self._waiting[answer] = position
        self._do(step)
        if isinstance(answer, Ticket):
            if answer not in self._waiting or which in self._loading:
                return True
            if bound := self._setting.wait_seconds + self._setting.unload_seconds + self._setting.freeing_seconds:
                self._clock.later(bound + ROUNDING, partial(self._wait_is_over, answer, which))
                return True
            return self._wait_is_over(answer, which, last)
        if isinstance(answer, lease.Granted):
            self._work(position, which, holder)
            return True
        if last:
            self._refused(answer)
        return False

    def _wait_is_over(self, ticket: Ticket, which: int, last: bool = True) -> bool:
        """Refuse a request that still waits for room as busy; one that waits for a load goes on."""
        if ticket not in self._waiting or which in self._loading:
            return True
        if len(self._loading) >= self._setting.loads_at_once:
            self._in_line.append((ticket, which))  # not for want of room, perhaps
            return True
        del self._waiting[ticket]
        self._outcome.busy += last
        self._do(self._core.cancel(ticket, self._clock.now))
        return False

    def _refused(self, answer: lease.Refusal) -> None:
        if isinstance(answer, lease.TooLarge):
            self._outcome.too_large += 1
        else:
            self._outcome.busy += 1

    def _work(self, position: int, which: int, holder: str, asked: float | None = None) -> None:
        """Begin a request that has a lease; `asked` is when it began to wait, if it had to."""
        now = self._clock.now
        self._outcome.started(position, now, 0.0 if asked is None else now - asked, hit=asked is None)
        leases = self._leases[holder]
        fresh = which not in leases
        held = leases.setdefault(which, _Lease())
        held.lost = False
        idle = held.until <= now
        held.until = max(held.until, now + self._models[which].warm_seconds)
        if fresh or idle:
            self._clock.later(held.until - now, partial(self._may_have_ended, holder, which))

    def _may_have_ended(self, holder: str, which: int) -> None:
        """Release a lease after its last request, where leases are not kept."""
        held = self._leases[holder].get(which)
        if held is None:
            return
        now = self._clock.now
        if held.until > now:
            self._clock.later(held.until - now, partial(self._may_have_ended, holder, which))
        elif held.lost or not self._setting.lease_seconds:
            del self._leases[holder][which]
            self._do(self._core.release(holder, self._core.incarnation, [self._models[which].name], now))

    def _renew(self) -> None:
        """Renew the leases of every proxy, now and later, and release those that are lost."""
        self._clock.later(self._setting.lease_seconds / lease.RENEWALS_PER_LEASE, self._renew)
        now = self._clock.now
        for holder, leases in self._leases.items():
            uses = {
                self._models[which].name: lease.Use(
                    in_flight=int(held.until > now), idle_seconds=max(0.0, now - held.until), requests=held.requests
                )
                for which, held in leases.items()
            }
            if not uses:
                continue
            step, renewed = self._core.renew(holder, self._core.incarnation, uses, now)
            self._do(step)
            for held in leases.values():
                held.requests = 0
            for which in (self._which[name] for name in renewed.lost):
                if which in leases:
                    leases[which].lost = True
                    self._may_have_ended(holder, which)

    def _do(self, first: Step) -> None:
        """Carry out the commands of a step, and of the steps that follow from it."""
        steps = deque([first])
        while steps:
            step = steps.popleft()
            for event in step.events:
                if isinstance(event, Answered) and (position := self._waiting.pop(event.ticket, None)) is not None:
                    ticket = event.ticket
                    if isinstance(event.answer, lease.Granted):
                        self._work(position, self._which[ticket.model], ticket.holder, ticket.asked)
                    else:
                        self._refused(event.answer)
                elif isinstance(event, Evicted):
                    self._outcome.evictions += 1
            for command in step.commands:
                steps.extend(self._carry_out(command))
        if self._in_line and len(self._loading) < self._setting.loads_at_once:
            in_line, self._in_line = self._in_line, []
            for ticket, which in in_line:
                self._wait_is_over(ticket, which)
        due = self._core.next_deadline()
        self.deadline = FOR_EVER if due is None else due

    def _carry_out(self, command: object) -> list[Step]:
        """Act as the server; return the steps that follow at once. Nothing leaks here, so it is never restarted."""
        assert isinstance(command, Load | Unload), command
        which = self._which[command.model]
        if isinstance(command, Load):
            self._loading.add(which)
            self._used_bytes += self._models[which].footprint_bytes
            seconds = self._models[which].load_seconds
            self._outcome.loads.append((self._clock.now, seconds))
            return self._after(0.0 if self._setting.instant else seconds, partial(self._loaded, command, which))
        self._resident.discard(which)
        return self._after(self._setting.unload_seconds, partial(self._unloaded, command, which))

    def _after(self, seconds: float, what: Callable[[], Step]) -> list[Step]:
        if not seconds:
            return [what()]
        self._clock.later(seconds, lambda: self._do(what()))
        return []

    def _loaded(self, command: Load, which: int) -> Step:
        self._loading.discard(which)
        self._resident.add(which)
        return self._core.load_ended(command.number, self._clock.now)

    def _unloaded(self, command: Unload, which: int) -> Step:
        def freed() -> None:
            self._used_bytes -= self._models[which].footprint_bytes
            self._do(self._core.memory(self._used_bytes, self._clock.now))

        if self._setting.freeing_seconds:
            self._clock.later(self._setting.freeing_seconds, freed)
        return self._core.unload_ended(command.number, self._clock.now)


def _pool_settings(trace: Trace, setting: SimulationSetting) -> PoolSettings:
    """Return the settings of the pool; waits and leases are bounded by the simulation, where it has bounds for them."""
    return PoolSettings(
        capacity_bytes=setting.capacity_bytes,
        policy=_with_true_costs(setting.policy, trace) if setting.instant else setting.policy,
        idle_seconds=setting.idle_seconds, lease_seconds=setting.lease_seconds or FOR_EVER, wait_seconds=FOR_EVER,
        loads_at_once=len(trace.models) if setting.instant else setting.loads_at_once,
        measures=setting.freeing_seconds > 0, tolerance_bytes=0, freeing_seconds=FOR_EVER,
        residency_factor=setting.residency_factor, overdue_seconds=FOR_EVER,
    )  # fmt: skip


def _with_true_costs(policy: Policy, trace: Trace) -> Policy:
    """Return the policy, given the trace's own load times: instant loads take none in simulated time."""
    seconds = {model.name: model.load_seconds for model in trace.models}

    def choose(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> Iterable[Candidate]:
        true = [replace(each, load_seconds=seconds[each.name]) for each in candidates]
        given = {each.name: each for each in candidates}
        return [given[each.name] for each in policy.choose(true, needed_bytes, now)]

    return replace(policy, choose=choose)


class Simulation:
    """One run over a trace: a clock, and a replica or several."""

    def __init__(self, trace: Trace, setting: SimulationSetting) -> None:
        self._trace, self._name = trace, setting.policy.name
        self.now = 0.0
        self._happening: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._outcome = Outcome()
        self._replicas = [
            SimulatedReplica(str(number), trace, setting, self, self._outcome) for number in range(setting.replicas)
        ]
        # By rendezvous hashing (Thaler and Ravishankar 1998), which the proxy uses too.
        self._ranks = [
            sorted(
                self._replicas,
                key=lambda each: hashlib.blake2b(f"{each.name}\0{model.name}".encode(), digest_size=8).digest(),
                reverse=True,
            )
            for model in trace.models
        ]

    def run(self) -> Outcome:
        """Simulate every request, and what follows from them."""
        for position, (seconds, which) in enumerate(shown(self._trace.requests(), self._name, len(self._trace))):
            self._until(seconds)
            self.now = seconds
            self._ask(position, which)
        self._until(FOR_EVER)
        return self._outcome

    @property
    def events(self) -> int:
        """How many events there were: requests, and all that followed from them."""
        return self._outcome.requests + self._count

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Have something happen in so many seconds."""
        self._count += 1
        heapq.heappush(self._happening, (self.now + seconds, self._count, what))

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
                heapq.heappop(self._happening)[2]()
                continue
            for replica in self._replicas:
                if replica.deadline <= self.now:
                    replica.tick()

    def _ask(self, position: int, which: int) -> None:
        """Send a request to the replicas in their order, those that have the model first."""
        self._outcome.requests += 1
        ranked = self._ranks[which]
        if len(ranked) > 1:
            ranked = sorted(ranked, key=lambda replica: not replica.has(which))
        for replica in ranked[:-1]:
            if replica.ask(position, which, last=False):
                return
        ranked[-1].ask(position, which, last=True)


def simulate(trace: Trace, setting: SimulationSetting) -> Outcome:
    """Return what comes of this trace with this setting."""
    return Simulation(trace, setting).run()
