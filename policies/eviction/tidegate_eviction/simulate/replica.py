"""A simulated replica: the container's own core, the server that it commands, and the leases that proxies hold there.

Nothing is decided here. Requests under leases are not told one by one: a lease counts them, and until when the last one
is worked on, which is all that its proxy tells the core when it renews, or gives it back. Where nothing else can come
of leases, because no model waits for room, each lease is followed by itself, when it is used or something else happens.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from tidegate_contracts import lease
from tidegate_contracts.lease import State
from tidegate_contracts.placement import TOGETHER_SECONDS

from ..core.messages import Answered, Evicted, Load, PolicyFailed, ServerInventory, Step, Ticket, Unload
from ..core.pool import LOOK_SECONDS
from ..core.residency import Residency
from .held import HeldLease
from .near import SimulatedTier
from .setting import FOR_EVER, SHORT_SECONDS, SimulationSetting, pool_settings, specs
from .trace import Outcome, Trace, TracedModel

Answer = lease.Granted | lease.Refusal
Told = Callable[[Answer, bool], None]
_JUST = 1e-6  # Seconds by which rounding may be off.
_Ask = tuple[int, str, float | None]  # Which model, for which proxy, and how long to wait for room.


class Clock(Protocol):
    """Simulated time, and the proxies that live in it."""

    now: float
    holders: tuple[str, ...]

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Have something happen in so many seconds."""

    def at(self, when: float, what: Callable[[], object], since: float) -> None:
        """Have something happen at a time, after what is to happen then and was known earlier than `since`."""

    def held(self, which: int, holder: str) -> None:
        """Take note that a proxy has got a lease, or may begin no more requests under one."""


class SimulatedReplica:
    """A server with its policy beside it, and the leases that proxies hold there."""

    def __init__(self, name: str, trace: Trace, setting: SimulationSetting, clock: Clock, outcome: Outcome) -> None:
        self.name = name
        self.deadline = FOR_EVER
        self._models = trace.models
        self._which = {model.name: which for which, model in enumerate(trace.models)}
        self._setting, self._clock, self._outcome = setting, clock, outcome
        self._tier = SimulatedTier(setting.tier_bytes, setting.tier_speedup) if setting.tier_bytes else None
        self._loading = 0
        self._began: dict[_Ask, tuple[float, int]] = {}  # When the last request for each began, and its ticket.
        self._tickets: dict[int, list[Told]] = {}
        self._leases: dict[str, dict[str, HeldLease]] = {holder: {} for holder in clock.holders}
        self._resident: dict[str, frozenset[str]] = dict.fromkeys(clock.holders, frozenset())
        """What is resident, as each proxy was told with its last renewal."""
        many = len(clock.holders)
        self._only = clock.holders[0]  # Where leases are followed, there is no other.
        self._phases = {holder: (number + 1) / (many + 1) for number, holder in enumerate(clock.holders)}
        self._looks: dict[tuple[str, float], list[HeldLease]] = {}
        self._used_bytes = 0
        settings = pool_settings(trace, setting)
        self._lease_seconds, self._measures = settings.lease_seconds, settings.measures
        self._core = Residency(settings, "simulated", clock.now)
        self._quiet = self._core.quiet
        self._period = setting.lease_seconds / lease.RENEWALS_PER_LEASE or FOR_EVER
        self._renewals = [clock.now]  # When leases are renewed.
        self._renews = False  # Whether the next one is among what happens, and not only for leases that are followed.
        self._may_be_quiet = many == 1 and self._period > LOOK_SECONDS
        """With several proxies it would count which of them says first how a model was used."""
        self._is_quiet = False  # Whether leases are followed one by one: nothing else comes of them.
        self._pressed_until = 0.0  # As the core has it in the quiet.
        self._told_at = FOR_EVER  # When proxies are told, in the quiet, what is resident.
        self._do(self._core.configure(settings, specs(trace, setting), (), clock.now))
        self._do(self._core.recover(ServerInventory(), clock.now))
        if setting.lease_seconds:
            self._renew()

    @property
    def unfinished(self) -> bool:
        """Whether a request waits, or a load is under way."""
        return bool(self._tickets or self._loading)

    def is_warm(self, which: int, holder: str) -> bool:
        """Whether the model is resident here, as far as a proxy knows."""
        name = self._models[which].name
        if self._setting.lease_seconds:
            return self._is_told(name, holder) or self.held(which, holder) is not None
        return self._core.state(name) in (State.RESIDENT, State.LOADING)

    def held(self, which: int, holder: str) -> HeldLease | None:
        """Return a proxy's lease under which requests may begin; None without one."""
        held = self._leases[holder].get(self._models[which].name)
        return held if held is not None and not held.lost and self._setting.lease_seconds else None

    def tick(self) -> None:
        """Have the core do what is due."""
        self._wake()
        self._do(self._core.tick(self._clock.now))

    def acquire(self, which: int, holder: str, room_seconds: float | None, told: Told) -> None:
        """Ask for a lease, together with those of a proxy's requests that began to wait for the same within a second;
        `told` is called with the answer, and whether it came at once."""
        ask, now = (which, holder, room_seconds), self._clock.now
        began, number = self._began.get(ask, (-FOR_EVER, 0))
        if now - began < TOGETHER_SECONDS and number in self._tickets:
            self._tickets[number].append(told)
            return
        self._wake()
        step, answer = self._core.acquire(self._models[which].name, holder, None, now, room_seconds)
        if isinstance(answer, Ticket):
            self._began[ask], self._tickets[answer.number] = (now, answer.number), [told]
        self._do(step)
        if not isinstance(answer, Ticket):
            told(answer, True)

    def begin(self, which: int, holder: str) -> bool:
        """Begin a request under a new lease if that is granted at once, and nothing else comes of it."""
        if not self._is_quiet or not self._quiet.grant(self._models[which].name, holder, self._clock.now):
            return False
        self.work(which, holder)
        return True

    def work(self, which: int, holder: str) -> None:
        """Begin a request that was granted a lease."""
        now, model, leases = self._clock.now, self._models[which], self._leases[holder]
        if (held := leases.get(model.name)) is None:
            held = leases[model.name] = HeldLease(which, model.warm_seconds, self, self._renewal_after(now))
        held.lost = False
        held.requests += 1
        idle = held.until <= now
        held.until = max(held.until, now + model.warm_seconds)
        if self._setting.lease_seconds:
            if not self._is_quiet:
                self._look_later(holder, held)
            self._clock.held(which, holder)
        elif idle:
            self._clock.later(held.until - now, partial(self._may_have_ended, holder, held))
            if self._lease_seconds == SHORT_SECONDS:
                self._prolong_later(holder, model)

    def _prolong_later(self, holder: str, model: TracedModel) -> None:
        """Keep a lease until its last request has ended, where it is given back then."""
        pause = self._lease_seconds / lease.RENEWALS_PER_LEASE
        if self._leases[holder][model.name].until - self._clock.now > pause:
            self._clock.later(pause, partial(self._prolong, holder, model))

    def _prolong(self, holder: str, model: TracedModel) -> None:
        if model.name in self._leases[holder]:
            uses = {model.name: HeldLease(self._which[model.name], model.warm_seconds, self, 0.0, in_flight=1)}
            self._do(self._core.prolong(holder, self._core.incarnation, uses, self._clock.now)[0])
            self._prolong_later(holder, model)

    def _may_have_ended(self, holder: str, held: HeldLease) -> None:
        """Release a lease after its last request, where it is not kept."""
        if held.until > self._clock.now:
            self._clock.later(held.until - self._clock.now, partial(self._may_have_ended, holder, held))
        elif self._leases[holder].get(self._models[held.which].name) is held:  # not released at this instant already
            self._release(holder, [held])

    def _look_later(self, holder: str, held: HeldLease) -> None:
        """Have a proxy look at a lease when it may have to be given back."""
        if (looks := self._looked_at(holder, held, self._clock.now)) >= held.looked_at:
            return
        held.looked_at = looks
        if (holder, looks) not in self._looks:
            self._looks[holder, looks] = []
            self._clock.at(looks, partial(self._look, holder, looks), held.until)
        self._looks[holder, looks].append(held)

    def _looked_at(self, holder: str, held: HeldLease, now: float) -> float:
        """Return when a proxy finds a lease unused, or lost, if it is not used again; no two proxies look at once."""
        at = max(held.until, now) if held.lost else held.until + self._setting.lease_seconds
        phase = self._phases[holder]
        return (math.ceil(at / LOOK_SECONDS - phase) + phase) * LOOK_SECONDS

    def _look(self, holder: str, looks: float) -> None:
        """Give back what is not used, all at once."""
        unused = []
        for held in self._looks.pop((holder, looks)):
            if held.looked_at != looks:
                continue
            held.looked_at = FOR_EVER
            if self._is_quiet and not held.lost:
                self.follow(held, looks)
            elif held.until <= looks if held.lost else self._looked_at(holder, held, looks) <= looks:
                unused.append(held)
            else:
                self._look_later(holder, held)
        if unused:
            self._release(holder, unused)

    def _release(self, holder: str, unused: Sequence[HeldLease], at: float | None = None) -> None:
        names = [self._models[held.which].name for held in unused]
        for name, held in zip(names, unused, strict=True):
            del self._leases[holder][name]
            held.looked_at = FOR_EVER
            self._clock.held(held.which, holder)
        if not self._is_quiet:
            self._do(self._core.release(holder, self._core.incarnation, names, self._clock.now))
            return
        for name in names:
            self._quiet.release(name, holder, self._clock.now if at is None else at)

    def _renew(self) -> None:
        """Renew the leases of every proxy, now and later."""
        self._renews = not self._is_quiet
        if self._is_quiet:
            return
        now = self._clock.now
        following = self._renewal_after(now)
        self._clock.at(following, self._renew, now)
        for holder, leases in self._leases.items():
            for held in leases.values():
                idle = now - held.until
                held.in_flight, held.idle_seconds = (1, 0.0) if idle < 0 else (0, idle)
                held.renews = following
            step, lost = self._core.prolong(holder, self._core.incarnation, leases, now)
            self._resident[holder] = self._core.resident
            self._do(step)
            for held in leases.values():
                held.requests = 0
            for held in (leases[name] for name in lost if name in leases):
                held.lost = True
                self._clock.held(held.which, holder)
                self._look_later(holder, held)

    def _renewal_after(self, at: float) -> float:
        """Return when leases are renewed first after a time."""
        renewals, place = self._renewals, int(at / self._period)
        while len(renewals) < place + 3:
            renewals.append(renewals[-1] + self._period)
        while place and renewals[place - 1] > at:
            place -= 1
        while renewals[place] <= at:
            place += 1
        return renewals[place]

    # In the quiet

    def follow(self, held: HeldLease, now: float, again: bool = False) -> bool:
        """Do with a lease what its proxy has done until now; tell whether requests may begin under it.

        `again`: a request comes, whose proxy asks here first, and gets another lease where it has given one back.
        """
        if held.lost:
            return False
        holder, name, renews = self._only, self._models[held.which].name, held.renews
        unused_at = held.until + self._setting.lease_seconds - _JUST  # Before, it is kept, unless room is wanted.
        while True:
            if not (held.requests or held.in_flight or renews < self._pressed_until):
                if now < unused_at:
                    held.renews = self._renewal_after(now)
                    return True
                renews = max(renews, self._renewal_after(unused_at))  # There is nothing to say until then.
            looks = self._looked_at(holder, held, renews)
            if renews > now < looks:
                held.renews = self._renewal_after(now)
                return True
            if renews < looks:
                idle = renews - held.until
                held.in_flight, held.idle_seconds = (1, 0.0) if idle < 0 else (0, idle)
                kept = self._quiet.renew(name, holder, held, renews, renews - self._period)
                held.requests = 0
                if kept:
                    renews += self._period
                    continue
                held.lost = True
                looks = self._looked_at(holder, held, renews)
            if looks > now:
                self._clock.held(held.which, holder)
                self._look_later(holder, held)
            elif again and self._is_told(name, holder):
                self._quiet.grant_again(name, holder, looks, now)
                held.lost, held.in_flight, held.looked_at = False, 0, FOR_EVER
                held.renews = self._renewal_after(now)
                return True
            else:
                self._release(holder, [held], looks)
            return False

    def _is_told(self, name: str, holder: str) -> bool:
        """Whether a proxy knows that a model is resident here."""
        if self._clock.now >= self._told_at:
            self._tell_residents()
        return name in self._resident[holder]

    def _tell_residents(self) -> None:
        """Have proxies know what is resident; in the quiet nothing changes that."""
        self._told_at = FOR_EVER
        for holder in self._resident:
            self._resident[holder] = self._core.resident

    def _wake(self) -> None:
        """End the quiet, before something else happens than what leases do."""
        if not self._is_quiet:
            return
        now, leases = self._clock.now, self._leases[self._only]
        if now >= self._told_at:
            self._tell_residents()
        for held in [*leases.values()]:
            self.follow(held, now)
        following = self._renewal_after(now)
        kept = [name for name, held in leases.items() if not held.lost]
        self._quiet.end(self._only, kept, following - self._period)
        self._is_quiet, self._told_at = False, FOR_EVER
        for held in leases.values():
            self._look_later(self._only, held)
        if not self._renews:
            self._renews = True
            self._clock.at(following, self._renew, following - self._period)

    def _do(self, *first: Step) -> None:
        """Carry out the commands of steps, and of the steps that follow from them; then pass the answers on."""
        steps = deque(step for step in first if step.events or step.commands)
        answers: list[tuple[list[Told], Answer]] = []
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
        self._is_quiet = self._may_be_quiet and self._quiet.is_quiet
        if self._is_quiet:
            self._told_at, self._pressed_until = self._renewal_after(self._clock.now), self._quiet.pressed_until
        due = self._quiet.until if self._is_quiet else self._core.next_deadline()
        self.deadline = FOR_EVER if due is None else due
        for waiting, answer in answers:
            for told in waiting:
                told(answer, False)

    def _carry_out(self, command: object) -> list[Step]:
        """Act as the server; return the steps that follow at once. Nothing leaks here, so it is never restarted."""
        assert isinstance(command, Load | Unload), command
        which = self._which[command.model]
        if isinstance(command, Load):
            self._loading += 1
            model, now = self._models[which], self._clock.now
            seconds, copied = model.load_seconds, 0.0
            if self._tier is not None:
                seconds, copied = self._tier.load(model, self._core.outlook(0.0), now)
            self._outcome.loads.append((now, seconds))
            return self._after(0.0 if self._setting.instant else seconds, partial(self._loaded, command, which, copied))
        return self._after(self._setting.unload_seconds, partial(self._unloaded, command, which))

    def _after(self, seconds: float, what: Callable[[], list[Step]]) -> list[Step]:
        if not seconds:
            return what()

        def then() -> None:
            self._wake()
            self._do(*what())

        self._clock.later(seconds, then)
        return []

    def _loaded(self, command: Load, which: int, copied: float) -> list[Step]:
        self._loading -= 1
        size, now = self._models[which].footprint_bytes, self._clock.now
        self._used_bytes += size
        self._outcome.memory.append((now, which, size))
        ended = self._core.load_ended(command.number, now, measured_bytes=size, copied_seconds=copied)
        return [ended, *self._read()]

    def _unloaded(self, command: Unload, which: int) -> list[Step]:
        def freed() -> list[Step]:
            self._used_bytes -= self._models[which].footprint_bytes
            return self._read()

        self._outcome.memory.append((self._clock.now, which, -self._models[which].footprint_bytes))
        ended = self._core.unload_ended(command.number, self._clock.now)
        return [ended, *self._after(self._setting.freeing_seconds, freed)]

    def _read(self) -> list[Step]:
        return [self._core.memory(self._used_bytes, self._clock.now)] if self._measures else []
