"""Simulated time: the requests of a trace against the container's own core, with proxies and the server simulated.

Nothing is decided here. The clock jumps from one event to the next: a request comes or ends, a load or an unload ends,
memory is back, leases are renewed, or the core's own deadline has come.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate_contracts import lease
from tidegate_contracts.lease import State
from tidegate_contracts.placement import NotNow, next_ask, ranked

from ..core.messages import (
    Answered,
    Evicted,
    Load,
    ModelSpec,
    PolicyFailed,
    PoolSettings,
    ServerInventory,
    Step,
    Ticket,
    Unload,
)
from ..core.pool import LOOK_SECONDS
from ..core.residency import Residency
from ..policies.policy import Policy
from .trace import Outcome, Trace, shown, with_true_costs


@dataclass(frozen=True, slots=True)
class SimulationSetting:
    """What is simulated, beside the requests: docs/simulator.md has it by the names of options. Times are seconds."""

    policy: Policy
    capacity_bytes: int
    idle_seconds: float = 0.0
    wait_seconds: float | None = None
    """The pool's bound on waits, for room and load together. None: as in plain simulations of caches, no request waits
    for room, every one waits for its load, and all loads run at once."""
    replicas: int = 1
    holders: int = 1  # Proxies, which get requests in turn.
    lease_seconds: float = 0.0
    unload_seconds: float = 0.0
    freeing_seconds: float = 0.0
    residency_factor: float = 0.0
    loads_at_once: int = PoolSettings.loads_at_once
    instant: bool = False
    pinned: frozenset[str] = frozenset()  # Models that are loaded at the start, on each replica, and never evicted.

    @property
    def is_plain(self) -> bool:
        """Whether it is a cache that is simulated, as others simulate them, and not a pool."""
        return self.instant or self.wait_seconds is None


SHORT_SECONDS = 1.0  # What leases last that are given back after the last request, and renewed until then.
FOR_EVER = 1e12  # Longer than any trace, in seconds.
Answer = lease.Granted | lease.Refusal
Told = Callable[[Answer, bool], None]
_Ask = tuple[int, str, float | None]  # Which model, for which proxy, and how long to wait for room.


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
        self._loading = 0
        self._asking: dict[_Ask, list[Told]] = {}
        self._tickets: dict[int, _Ask] = {}
        self._leases: dict[str, dict[int, _Lease]] = {holder: {} for holder in clock.holders}
        self._resident: dict[str, frozenset[str]] = dict.fromkeys(clock.holders, frozenset())
        """What is resident, as each proxy was told with its last renewal."""
        self._looks: set[tuple[str, float]] = set()
        self._used_bytes = 0
        settings = _pool_settings(trace, setting)
        self._lease_seconds, self._measures = settings.lease_seconds, settings.measures
        self._core = Residency(settings, "simulated", clock.now)
        # What a trace says of footprints is true: measured before, or, where a pool begins, with the first load.
        specs = {
            model.name: ModelSpec(
                model.name,
                footprint_bytes=None if setting.is_plain else model.footprint_bytes,
                estimate_bytes=model.footprint_bytes if setting.is_plain else None,
                estimate_from="measured" if setting.is_plain else "unknown",
                pinned=model.name in setting.pinned,
            )
            for model in trace.models
        }
        self._do(self._core.configure(settings, specs, (), clock.now))
        self._do(self._core.recover(ServerInventory(), clock.now))
        if setting.lease_seconds:
            self._renew()

    @property
    def unfinished(self) -> bool:
        """Whether a request waits, or a load is under way."""
        return bool(self._tickets or self._loading)

    def is_warm(self, which: int, holder: str) -> bool:
        """Whether the model is resident here, as far as a proxy knows."""
        if self._setting.lease_seconds:
            return self._models[which].name in self._resident[holder] or self.holds(which, holder)
        return self._core.state(self._models[which].name) in (State.RESIDENT, State.LOADING)

    def holds(self, which: int, holder: str) -> bool:
        """Whether a proxy holds a lease under which a request may begin."""
        held = self._leases[holder].get(which)
        return held is not None and not held.lost and self._setting.lease_seconds > 0

    def tick(self) -> None:
        """Have the core do what is due."""
        self._do(self._core.tick(self._clock.now))

    def acquire(self, which: int, holder: str, room_seconds: float | None, told: Told) -> None:
        """Ask for a lease, once for all requests of a proxy that want the same; `told` is called with the answer, and
        whether it came at once."""
        ask = which, holder, room_seconds
        if ask in self._asking:
            self._asking[ask].append(told)
            return
        step, answer = self._core.acquire(self._models[which].name, holder, None, self._clock.now, room_seconds)
        if isinstance(answer, Ticket):
            self._asking[ask] = [told]
            self._tickets[answer.number] = ask
        self._do(step)
        if not isinstance(answer, Ticket):
            told(answer, True)

    def work(self, which: int, holder: str) -> None:
        """Begin a request that has a lease."""
        now = self._clock.now
        leases = self._leases[holder]
        fresh = which not in leases
        held = leases.setdefault(which, _Lease())
        held.lost = False
        held.requests += 1
        idle = held.until <= now
        held.until = max(held.until, now + self._models[which].warm_seconds)
        if fresh or idle:
            self._clock.later(held.until - now, partial(self._may_have_ended, holder, which))
            if self._lease_seconds == SHORT_SECONDS:
                self._prolong_later(holder, which)

    def _prolong_later(self, holder: str, which: int) -> None:
        """Keep a lease until its last request has ended, where it is given back then."""
        pause = self._lease_seconds / lease.RENEWALS_PER_LEASE
        if self._leases[holder][which].until - self._clock.now > pause:
            self._clock.later(pause, partial(self._prolong, holder, which))

    def _prolong(self, holder: str, which: int) -> None:
        if which in self._leases[holder]:
            uses = {self._models[which].name: lease.Use(in_flight=1, idle_seconds=0.0)}
            step, _ = self._core.renew(holder, self._core.incarnation, uses, self._clock.now)
            self._do(step)
            self._prolong_later(holder, which)

    def _may_have_ended(self, holder: str, which: int) -> None:
        """Release a lease after its last request; one that is kept, when a proxy that looks finds it unused."""
        held = self._leases[holder].get(which)
        if held is None:
            return
        now = self._clock.now
        if held.until > now:
            self._clock.later(held.until - now, partial(self._may_have_ended, holder, which))
        elif not self._setting.lease_seconds:
            self._release(holder, [which])
        else:
            self._look_later(holder, now if held.lost else held.until + self._setting.lease_seconds)

    def _look_later(self, holder: str, at: float) -> None:
        """Have a proxy look at its leases when it does so next from a time on; no two proxies look at once."""
        phase = (self._clock.holders.index(holder) + 1) / (len(self._clock.holders) + 1)
        looks = (math.ceil(at / LOOK_SECONDS - phase) + phase) * LOOK_SECONDS
        if (holder, looks) not in self._looks:
            self._looks.add((holder, looks))
            self._clock.later(looks - self._clock.now, partial(self._look, holder, looks))

    def _look(self, holder: str, looks: float) -> None:
        """Give back what is not used, all at once."""
        self._looks.discard((holder, looks))
        idle_since = self._clock.now - self._setting.lease_seconds
        unused = [
            which
            for which, held in self._leases[holder].items()
            if held.until <= (self._clock.now if held.lost else idle_since)
        ]
        if unused:
            self._release(holder, unused)

    def _release(self, holder: str, unused: Sequence[int]) -> None:
        for which in unused:
            del self._leases[holder][which]
        names = [self._models[which].name for which in unused]
        self._do(self._core.release(holder, self._core.incarnation, names, self._clock.now))

    def _renew(self) -> None:
        """Renew the leases of every proxy, now and later."""
        self._clock.later(self._setting.lease_seconds / lease.RENEWALS_PER_LEASE, self._renew)
        now = self._clock.now
        for holder, leases in self._leases.items():
            uses = {
                self._models[which].name: lease.Use(
                    in_flight=int(held.until > now), idle_seconds=max(0.0, now - held.until), requests=held.requests
                )
                for which, held in leases.items()
            }
            step, renewed = self._core.renew(holder, self._core.incarnation, uses, now)
            self._resident[holder] = frozenset(renewed.resident)
            self._do(step)
            for held in leases.values():
                held.requests = 0
            for which in (self._which[name] for name in renewed.lost):
                if which in leases:
                    leases[which].lost = True
                    self._may_have_ended(holder, which)

    def _do(self, *first: Step) -> None:
        """Carry out the commands of steps, and of the steps that follow from them; then pass the answers on."""
        steps = deque(first)
        answers: list[tuple[_Ask, Answer]] = []
        while steps:
            step = steps.popleft()
            for event in step.events:
                if isinstance(event, Answered):
                    answers.append((self._tickets.pop(event.ticket.number), event.answer))
                elif isinstance(event, Evicted):
                    self._outcome.evictions += 1
                elif isinstance(event, PolicyFailed):
                    self._outcome.policy_failures += 1
                    self._outcome.policy_failure = self._outcome.policy_failure or event.why
            for command in step.commands:
                steps.extend(self._carry_out(command))
        due = self._core.next_deadline()
        self.deadline = FOR_EVER if due is None else due
        for ask, answer in answers:
            for told in self._asking.pop(ask):
                told(answer, False)

    def _carry_out(self, command: object) -> list[Step]:
        """Act as the server; return the steps that follow at once. Nothing leaks here, so it is never restarted."""
        assert isinstance(command, Load | Unload), command
        which = self._which[command.model]
        if isinstance(command, Load):
            self._loading += 1
            seconds = self._models[which].load_seconds
            self._outcome.loads.append((self._clock.now, seconds))
            return self._after(0.0 if self._setting.instant else seconds, partial(self._loaded, command, which))
        return self._after(self._setting.unload_seconds, partial(self._unloaded, command, which))

    def _after(self, seconds: float, what: Callable[[], list[Step]]) -> list[Step]:
        if not seconds:
            return what()
        self._clock.later(seconds, lambda: self._do(*what()))
        return []

    def _loaded(self, command: Load, which: int) -> list[Step]:
        self._loading -= 1
        size = self._models[which].footprint_bytes
        self._used_bytes += size
        return [self._core.load_ended(command.number, self._clock.now, measured_bytes=size), *self._read()]

    def _unloaded(self, command: Unload, which: int) -> list[Step]:
        def freed() -> list[Step]:
            self._used_bytes -= self._models[which].footprint_bytes
            return self._read()

        ended = self._core.unload_ended(command.number, self._clock.now)
        return [ended, *self._after(self._setting.freeing_seconds, freed)]

    def _read(self) -> list[Step]:
        return [self._core.memory(self._used_bytes, self._clock.now)] if self._measures else []


def _pool_settings(trace: Trace, setting: SimulationSetting) -> PoolSettings:
    plain = setting.is_plain
    return PoolSettings(
        capacity_bytes=setting.capacity_bytes,
        policy=with_true_costs(setting.policy, trace) if setting.instant else setting.policy,
        idle_seconds=setting.idle_seconds,
        lease_seconds=setting.lease_seconds or (FOR_EVER if plain else SHORT_SECONDS),
        wait_seconds=FOR_EVER if setting.wait_seconds is None else setting.wait_seconds,
        loads_at_once=len(trace.models) if plain else setting.loads_at_once,
        measures=setting.freeing_seconds > 0 or not plain, tolerance_bytes=0, freeing_seconds=FOR_EVER,
        residency_factor=setting.residency_factor,
    )  # fmt: skip


class Simulation:
    """One run over a trace: a clock, and a replica or several."""

    def __init__(self, trace: Trace, setting: SimulationSetting, names: Sequence[str] = ()) -> None:
        self._trace, self._setting = trace, setting
        self.now = 0.0
        self.holders = tuple(f"proxy-{number}" for number in range(setting.holders))
        self._happening: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._outcome = Outcome(wait_seconds=setting.wait_seconds or 0.0)
        replicas = {
            name: SimulatedReplica(name, trace, setting, self, self._outcome)
            for name in names or map(str, range(setting.replicas))
        }
        self._replicas = list(replicas.values())
        self._ranks = [[replicas[name] for name in ranked(model.name, replicas)] for model in trace.models]

    def run(self) -> Outcome:
        """Simulate every request, and what follows from them."""
        requests = shown(self._trace.requests(), self._setting.policy.name, len(self._trace))
        for position, (seconds, which) in enumerate(requests):
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
        """Be a request: begin where its proxy holds a lease, or have it ask around for one as proxies do."""
        outcome, asked, holder = self._outcome, self.now, self.holders[position % len(self.holders)]
        outcome.requests += 1
        by_rank = self._ranks[which]
        for replica in by_rank:
            if replica.holds(which, holder):
                outcome.started(position, asked, 0.0, hit=True)
                replica.work(which, holder)
                return
        candidates = sorted(by_rank, key=lambda replica: not replica.is_warm(which, holder))
        refusals: list[NotNow] = []

        def ask() -> None:
            if (found := next_ask(len(candidates), refusals)) is None:
                outcome.busy += 1
                return
            number, room_seconds = found
            replica = candidates[number]

            def told(answer: Answer, at_once: bool) -> None:
                if isinstance(answer, lease.Granted):
                    outcome.started(position, self.now, self.now - asked, hit=at_once)
                    replica.work(which, holder)
                elif isinstance(answer, lease.Busy):
                    refusals.append(NotNow(False, answer.retry_after, answer.why))
                    ask()
                else:
                    outcome.too_large += 1

            replica.acquire(which, holder, 0.0 if self._setting.wait_seconds is None else room_seconds, told)

        ask()


def simulate(trace: Trace, setting: SimulationSetting) -> Outcome:
    """Return what comes of this trace with this setting."""
    return Simulation(trace, setting).run()
