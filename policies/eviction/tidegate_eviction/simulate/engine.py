"""Simulated time: the requests of a trace against the policy's own core, with simulated proxies and a simulated server.

The clock jumps from event to event. Events are requests without a lease, ends of loads, renewals and releases, and
deadlines of the core. Requests that find a lease between two events only change its counters: how many came, and
until when the last one runs. A proxy reports exactly this to the core when it renews or releases a lease.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate_contracts import lease
from tidegate_contracts.placement import TOGETHER_SECONDS, NotNow, next_ask, ranked

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
from .near import SimulatedTier
from .trace import Outcome, Trace, shown

BLOCKS = 100  # Parts of a trace for the progress bar.
FOR_EVER = 1e12  # Longer than any trace, in seconds.


@dataclass(frozen=True)
class SimulationSetting:
    """The settings of a simulated pool. docs/simulator.md explains them. Times are seconds."""

    policy: Policy
    capacity_bytes: int  # Of each replica.
    idle_seconds: float = 0.0
    wait_seconds: float = 20.0  # For memory and load together.
    lease_seconds: float = 15.0
    replicas: int = 1
    holders: int = 1  # Proxies, which get requests in turn.
    tier_bytes: int = 0  # The file cache of each replica. 0: none.
    tier_speedup: float = 1.0  # How much faster a load from the file cache is.
    pinned: frozenset[str] = frozenset()  # Models that are loaded at the start on each replica, and never evicted.


Answer = lease.Granted | lease.Refusal
OnAnswer = Callable[[Answer, bool], None]
_Ask = tuple[int, str, float | None]  # The model, the proxy, and how long to wait for memory.


@dataclass(slots=True)
class HeldLease:
    """A lease from its proxy's view."""

    which: int
    warm_seconds: float
    until: float = 0.0  # The end of the last request.
    requests: int = 0  # Since the last renewal.
    lost: bool = False  # No request may begin under it. It is released when the last one has ended.
    check_at: float = FOR_EVER  # When its proxy finds it unused, unless it is used again.


class SimulatedReplica:
    """A server with its policy, and the leases that proxies hold there."""

    def __init__(
        self, name: str, trace: Trace, setting: SimulationSetting, clock: "Simulation", outcome: Outcome
    ) -> None:
        self.name = name
        self.deadline = FOR_EVER
        self._models = trace.models
        self._which = {model.name: which for which, model in enumerate(trace.models)}
        self._setting, self._clock, self._outcome = setting, clock, outcome
        self._tier = SimulatedTier(setting.tier_bytes, setting.tier_speedup) if setting.tier_bytes else None
        self._loading = 0
        self._began: dict[_Ask, tuple[float, int]] = {}  # The last request of each kind, and its ticket.
        self._tickets: dict[int, list[OnAnswer]] = {}
        self._leases: dict[str, dict[str, HeldLease]] = {holder: {} for holder in clock.holders}
        self._resident: dict[str, frozenset[str]] = dict.fromkeys(clock.holders, frozenset())
        """The resident models, as each proxy knows from its last renewal."""
        many = len(clock.holders)
        self._phases = {holder: (number + 1) / (many + 1) for number, holder in enumerate(clock.holders)}
        self._checks: dict[tuple[str, float], list[HeldLease]] = {}
        self._used_bytes = 0
        settings = PoolSettings(
            setting.capacity_bytes, setting.policy, setting.idle_seconds, setting.lease_seconds, setting.wait_seconds,
            tolerance_bytes=0, freeing_seconds=FOR_EVER,
        )  # fmt: skip
        # The trace's footprints are exact, and measured at the first load.
        specs = {
            model.name: ModelSpec(model.name, model.footprint_bytes, pinned=model.name in setting.pinned)
            for model in trace.models
        }
        self._core = Residency(settings, "simulated", clock.now)
        self._do(self._core.configure(settings, specs, clock.now))
        self._do(self._core.recover(ServerInventory(), clock.now))
        self._renew()

    @property
    def unfinished(self) -> bool:
        return bool(self._tickets or self._loading)

    def is_warm(self, which: int, holder: str) -> bool:
        """Whether the model is resident here, as far as a proxy knows."""
        return self._models[which].name in self._resident[holder] or self.held_lease(which, holder) is not None

    def held_lease(self, which: int, holder: str) -> HeldLease | None:
        """Return a proxy's lease under which requests may begin, or None."""
        held = self._leases[holder].get(self._models[which].name)
        return held if held is not None and not held.lost else None

    def tick(self) -> None:
        self._do(self._core.tick(self._clock.now))

    def acquire(self, which: int, holder: str, room_seconds: float | None, on_answer: OnAnswer) -> None:
        """Request a lease. A proxy's requests within a second share it. `on_answer` gets it, and if that was quick."""
        ask, now = (which, holder, room_seconds), self._clock.now
        began, number = self._began.get(ask, (-FOR_EVER, 0))
        if now - began < TOGETHER_SECONDS and number in self._tickets:
            self._tickets[number].append(on_answer)
            return
        step, answer = self._core.acquire(self._models[which].name, holder, None, now, room_seconds)
        if isinstance(answer, Ticket):
            self._began[ask], self._tickets[answer.number] = (now, answer.number), [on_answer]
        self._do(step)
        if not isinstance(answer, Ticket):
            on_answer(answer, True)

    def work(self, which: int, holder: str) -> None:
        """Begin a request under a lease."""
        now, model, leases = self._clock.now, self._models[which], self._leases[holder]
        if (held := leases.get(model.name)) is None:
            held = leases[model.name] = HeldLease(which, model.warm_seconds)
        held.lost = False
        held.requests += 1
        held.until = max(held.until, now + model.warm_seconds)
        self._check_later(holder, held)
        self._clock.lease_changed(which, holder)

    def _check_later(self, holder: str, held: HeldLease) -> None:
        """Schedule a proxy's check of a lease."""
        if (at := self._next_check(holder, held, self._clock.now)) >= held.check_at:
            return
        held.check_at = at
        if (holder, at) not in self._checks:
            self._checks[holder, at] = []
            self._clock.at(at, partial(self._check, holder, at), held.until)
        self._checks[holder, at].append(held)

    def _next_check(self, holder: str, held: HeldLease, now: float) -> float:
        """Return when a proxy finds a lease unused, or lost, if it is not used again. No two proxies check at once."""
        at = max(held.until, now) if held.lost else held.until + self._setting.lease_seconds
        phase = self._phases[holder]
        return (math.ceil(at / LOOK_SECONDS - phase) + phase) * LOOK_SECONDS

    def _check(self, holder: str, at: float) -> None:
        """Release unused leases, all at once."""
        unused = []
        for held in self._checks.pop((holder, at)):
            if held.check_at != at:
                continue
            held.check_at = FOR_EVER
            if held.until <= at if held.lost else self._next_check(holder, held, at) <= at:
                unused.append(held)
            else:
                self._check_later(holder, held)
        if unused:
            self._release(holder, unused)

    def _release(self, holder: str, unused: Sequence[HeldLease]) -> None:
        names = [self._models[held.which].name for held in unused]
        for name, held in zip(names, unused, strict=True):
            del self._leases[holder][name]
            held.check_at = FOR_EVER
            self._clock.lease_changed(held.which, holder)
        self._do(self._core.release(holder, self._core.incarnation, names, self._clock.now))

    def _renew(self) -> None:
        """Renew the leases of every proxy, now and periodically."""
        now = self._clock.now
        self._clock.later(self._setting.lease_seconds / lease.RENEWALS_PER_LEASE, self._renew)
        for holder, leases in self._leases.items():
            uses = {}
            for name, held in leases.items():
                idle = now - held.until
                uses[name] = lease.Use.model_construct(
                    in_flight=int(idle < 0), idle_seconds=max(0.0, idle), requests=held.requests
                )
                held.requests = 0
            step, renewed = self._core.renew(holder, self._core.incarnation, uses, now)
            self._resident[holder] = self._core.resident
            self._do(step)
            for held in (leases[name] for name in renewed.lost if name in leases):
                held.lost = True
                self._clock.lease_changed(held.which, holder)
                self._check_later(holder, held)

    def _do(self, *first: Step) -> None:
        """Carry out the commands of steps, and of the steps that follow. Then pass the responses on."""
        steps = deque(step for step in first if step.events or step.commands)
        answers: list[tuple[list[OnAnswer], Answer]] = []
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
        for waiting, answer in answers:
            for on_answer in waiting:
                on_answer(answer, False)

    def _carry_out(self, command: object) -> list[Step]:
        """Act as the server, and return the immediate steps. Nothing leaks, so it is never restarted."""
        assert isinstance(command, Load | Unload), command
        which = self._which[command.model]
        if isinstance(command, Load):
            self._loading += 1
            model, now = self._models[which], self._clock.now
            seconds, copied = (model.load_seconds, 0.0) if self._tier is None else self._tier.load(model, now)
            self._outcome.loads.append((now, seconds))
            if not seconds:
                return self._loaded(command, which, copied)
            self._clock.later(seconds, lambda: self._do(*self._loaded(command, which, copied)))
            return []
        size = self._models[which].footprint_bytes
        self._used_bytes -= size
        self._outcome.memory.append((self._clock.now, which, -size))
        ended = self._core.unload_ended(command.number, self._clock.now)
        return [ended, self._core.memory(self._used_bytes, self._clock.now)]

    def _loaded(self, command: Load, which: int, copied: float) -> list[Step]:
        self._loading -= 1
        size, now = self._models[which].footprint_bytes, self._clock.now
        self._used_bytes += size
        self._outcome.memory.append((now, which, size))
        ended = self._core.load_ended(command.number, now, measured_bytes=size, copied_seconds=copied)
        return [ended, self._core.memory(self._used_bytes, now)]


class Simulation:
    """One run over a trace: a clock, and one or more replicas."""

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
                self._outcome.warm(warm, position)
                warm = position + 1
                self._ask(position, which)
                due = self._due()
            self._outcome.warm(warm, min(begin + size, len(trace)))
        self._until(FOR_EVER)
        return self._outcome

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.at(self.now + seconds, what, self.now)

    def at(self, when: float, what: Callable[[], object], since: float) -> None:
        """Schedule something at a time, after events at that time that were scheduled before `since`."""
        self._count += 1
        heapq.heappush(self._happening, (when, since, self._count, what))

    def lease_changed(self, which: int, holder: str) -> None:
        """Note that a proxy got a lease, or may begin no more requests under one."""
        found = None
        for replica in self._ranks[which]:
            if (found := replica.held_lease(which, holder)) is not None:
                break
        self._held[holder][which] = found

    def refused(self, _position: int, _which: int, _why: NotNow) -> None:
        """Count a refused request. It does not return."""
        self._outcome.busy += 1

    def _due(self) -> float:
        """Return the time of the next event."""
        due = min(replica.deadline for replica in self._replicas)
        return min(due, self._happening[0][0]) if self._happening else due

    def _until(self, end: float) -> None:
        """Advance to a time. After the last request, until no request waits and no model loads."""
        while end < FOR_EVER or any(replica.unfinished for replica in self._replicas):
            first = self._due()
            if first > end or first >= FOR_EVER:
                return
            self.now = max(self.now, first)
            if self._happening and self._happening[0][0] == first:
                heapq.heappop(self._happening)[-1]()
                continue
            for replica in self._replicas:
                if replica.deadline <= self.now:
                    replica.tick()

    def _ask(self, position: int, which: int) -> None:
        """Begin a request without a lease: its proxy requests one as proxies do."""
        outcome, began, holder = self._outcome, self.now, self.holders[position % len(self.holders)]
        outcome.requests += 1
        candidates = sorted(self._ranks[which], key=lambda replica: not replica.is_warm(which, holder))
        refusals: list[NotNow] = []

        def ask() -> None:
            if (found := next_ask(len(candidates), refusals)) is None:
                self.refused(position, which, min(refusals))
                return
            number, room_seconds = found
            replica = candidates[number]

            def on_answer(answer: Answer, at_once: bool) -> None:
                if isinstance(answer, lease.Granted):
                    outcome.started(position, self.now - began, hit=at_once)
                    replica.work(which, holder)
                elif isinstance(answer, lease.Busy):
                    refusals.append(NotNow(False, answer.retry_after, answer.why, answer.reason or ""))
                    ask()
                else:
                    outcome.too_large += 1

            replica.acquire(which, holder, room_seconds, on_answer)

        ask()


def simulate(trace: Trace, setting: SimulationSetting) -> Outcome:
    """Return the outcome of a trace with a setting."""
    return Simulation(trace, setting).run()
