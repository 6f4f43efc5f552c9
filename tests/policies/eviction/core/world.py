"""A simulated Triton, its memory and some proxies around the core. It checks the invariants after every step."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidegate_contracts import lease
from tidegate_contracts.lease import State
from tidegate_eviction.core.messages import (
    Answered,
    Evicted,
    Load,
    ModelSpec,
    Overrun,
    PoolSettings,
    Recycle,
    ServerInventory,
    Step,
    Ticket,
    Unload,
)
from tidegate_eviction.core.residency import Residency
from tidegate_eviction.core.states import AFTER
from tidegate_eviction.policies.registry import find

BASE = 1000
RULES = PoolSettings(
    capacity_bytes=100, policy=find("lru-idle"), loads_at_once=2, tolerance_bytes=0, leak_budget_bytes=30,
    first_load_margin=0.0,
    idle_seconds=30.0, lease_seconds=16.0, wait_seconds=8.0, freeing_seconds=4.0,
    failure_backoff_seconds=4.0, overdue_seconds=4.0, default_load_seconds=2.0,
)  # fmt: skip
REACHABLE = {(before, after) for (before, _), after in AFTER.items()}
for _ in State:  # Several transitions can happen within one step.
    REACHABLE |= {(a, d) for a, b in REACHABLE for c, d in REACHABLE if b is c}


@dataclass
class Held:
    """A lease from the proxy's view, which it times from its request."""

    until: float
    incarnation: str
    open: bool = True  # Whether new requests may begin under it.
    in_flight: int = 0
    last_use: float = 0.0


@dataclass
class Begun:
    command: Load | Unload
    pieces: tuple[str, ...]
    since: float = 0.0

    def alone(self, now: float) -> bool:
        return isinstance(self.command, Load) and self.command.alone and now < self.since + RULES.alone_seconds


def specs(sizes: Mapping[str, int], **more: object) -> dict[str, ModelSpec]:
    return {name: replace(ModelSpec(name, footprint_bytes=size), **more) for name, size in sizes.items()}  # type: ignore[arg-type]


@dataclass
class World:
    specs: dict[str, ModelSpec]
    rules: PoolSettings = RULES
    real: dict[str, int] = field(default_factory=dict)  # Real sizes of pieces, if they differ from declared ones.
    now: float = 0.0
    starts: int = 0
    loaded: dict[str, int] = field(default_factory=dict)  # Pieces in Triton, with their memory.
    at_work: dict[int, Begun] = field(default_factory=dict)
    lingering: int = 0  # The memory of unloaded pieces.
    lost: int = 0  # Memory that is never freed.
    up: bool = True
    proxies: dict[str, dict[str, Held]] = field(default_factory=lambda: {"p1": {}, "p2": {}})
    open: dict[int, Ticket] = field(default_factory=dict)
    excused: bool = False  # The charges exceed the capacity for a reported reason.
    leaving: bool = False
    recycled: int = 0
    answers: dict[int, lease.Granted | lease.Refusal] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    evictions: list[Evicted] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)  # Models on which a lease was just granted.

    def __post_init__(self) -> None:
        self.residency = Residency(self.rules, "start-0", self.now)
        self.configure()

    # --- steps
    def take(self, step: Step) -> Step:
        for event in step.events:
            if isinstance(event, Answered):
                ticket = self.open.pop(event.ticket.number)  # KeyError: a second response, or one without a ticket.
                self.answers[ticket.number] = event.answer
                if isinstance(event.answer, lease.Granted):
                    self.granted(ticket.model, ticket.holder, event.answer, ticket.since)
            elif isinstance(event, Overrun):
                self.excused = True
            elif isinstance(event, Evicted):
                self.evictions.append(event)
                self.may_go(event)
        for command in step.commands:
            if isinstance(command, Load):
                self.load(command)
            elif isinstance(command, Unload):
                self.unload(command)
            else:
                self.recycle(command)
        self.check()
        return step

    def may_go(self, event: Evicted) -> None:
        spec = self.specs.get(event.model)
        if event.reason in ("room", "pinned", "ahead") and spec is not None:
            assert not spec.pinned
            if event.reason in ("room", "ahead"):
                limit = self.rules.idle_seconds if spec.idle_seconds is None else spec.idle_seconds
                if self.rules.policy.breaks_even and spec.idle_seconds is None:
                    # Evictions for memory are checked at the unload.
                    load = self.residency.load_seconds.get(event.model, self.rules.default_load_seconds)
                    limit = min(limit, 4 * load) if event.reason == "ahead" else 0.0
                assert event.idle_seconds >= limit - 1e-9, f"{event} although its limit is {limit}"

    def load(self, command: Load) -> None:
        pieces = (command.model, *(self.specs[command.model].parts if command.model in self.specs else ()))
        assert self.up
        assert not self.leaving, "a load begins after SIGTERM"
        for other in self.at_work.values():
            assert command.watch or set(other.pieces).isdisjoint(pieces), f"{command} beside {other.command}"
            alone = command.alone or other.alone(self.now)
            assert command.watch or not alone, f"{command} beside {other.command}"
        begun = [other for other in self.at_work.values() if isinstance(other.command, Load)]
        assert command.watch or len(begun) < self.rules.loads_at_once
        if not command.watch:
            self.at_work[command.number] = Begun(command, tuple(p for p in pieces if p not in self.loaded), self.now)
        else:
            number = next(n for n, other in self.at_work.items() if other.command.model == command.model)
            self.at_work[command.number] = replace(self.at_work.pop(number), command=command)
        self.loads.append(command.model)
        if not command.watch:
            assert self.charged() <= self.rules.capacity_bytes, f"{command} overruns the capacity"

    def unload(self, command: Unload) -> None:
        assert self.up
        assert not self.leaving or command.watch or self.states.get(command.model) == "loading"
        for holder, leases in self.proxies.items():
            for model, held in leases.items():
                needed = {model, *(self.specs[model].parts if model in self.specs else ())}
                if needed & set(command.names) and self.now < held.until and model in self.states:
                    raise AssertionError(f"{command} although {holder} holds {model} until {held.until}, at {self.now}")
        for other in self.at_work.values():
            if command.watch and set(other.pieces) <= set(command.names):
                continue
            assert set(other.pieces).isdisjoint(command.names), f"{command} beside {other.command}"
            assert not other.alone(self.now), f"{command} beside {other.command}"
        if command.watch:
            for number in [n for n, other in self.at_work.items() if set(other.pieces) <= set(command.names)]:
                del self.at_work[number]
        self.at_work[command.number] = Begun(command, command.names)

    def recycle(self, _command: Recycle) -> None:
        self.recycled += 1
        for leases in self.proxies.values():
            assert all(
                held.until <= self.now or held.incarnation != self.residency.incarnation for held in leases.values()
            )

    # --- invariants
    def charged(self) -> int:
        listing = self.residency.listing(self.now)
        return listing.resident_bytes + listing.loading_bytes + listing.freeing_bytes + listing.leaked_bytes

    def check(self) -> None:
        listing = self.residency.listing(self.now)
        charged = listing.resident_bytes + listing.loading_bytes + listing.freeing_bytes + listing.leaked_bytes
        if charged <= listing.capacity_bytes:
            self.excused = False
        assert charged <= listing.capacity_bytes or self.excused, f"{charged} of {listing.capacity_bytes} bytes"
        going = {p for each in self.at_work.values() if isinstance(each.command, Unload) for p in each.pieces}
        states: dict[str, str] = {}
        for model in listing.models:
            states[model.model] = model.state
            before = State(self.states.get(model.model, "unknown"))
            assert before == model.state or (before, State(model.state)) in REACHABLE
            pieces = {model.model, *(self.specs[model.model].parts if model.model in self.specs else ())}
            if model.state in ("resident", "draining"):
                assert pieces <= self.loaded.keys(), f"{model.model} is {model.state}, and Triton lacks it"
                assert not pieces & going, f"{model.model} is {model.state}, and is being unloaded"
            else:
                assert not model.leases
        self.states = states
        for name in self.fresh:
            assert states[name] == "resident", f"a lease on {name}, which is {states[name]}"
        self.fresh.clear()
        for ticket in self.open.values():
            assert ticket.deadline > self.now, f"{ticket} is not answered at {self.now}"

    # --- proxies
    def ask(
        self,
        holder: str,
        model: str,
        wait: float | None,
        delay: float = 0.0,
        *,
        gets: bool = True,
        spare: bool = False,
    ) -> lease.Granted | lease.Refusal | Ticket:
        step, answer = self.residency.acquire(model, holder, wait, self.now, spare=spare)
        if isinstance(answer, Ticket):
            assert answer.deadline <= self.now + self.rules.wait_seconds
            self.open[answer.number] = replace(answer, since=self.now - delay) if gets else answer
        elif isinstance(answer, lease.Granted) and gets:
            self.granted(model, holder, answer, self.now - delay)
        self.take(step)
        return answer

    def granted(self, model: str, holder: str, answer: lease.Granted, began: float) -> None:
        self.fresh.append(model)
        assert answer.incarnation == self.residency.incarnation
        self.proxies[holder][model] = Held(began + answer.lease_seconds, answer.incarnation, True, 1, self.now)

    def renew(self, holder: str, delay: float = 0.0, *, gets: bool = True) -> lease.Renewed:
        """Renew a proxy's leases, and let it act on the response if it gets it."""
        leases = self.proxies[holder]
        uses = {
            model: lease.Use(
                in_flight=held.in_flight,
                idle_seconds=0.0 if held.in_flight else max(0.0, self.now - held.last_use),
                requests=held.in_flight,
            )
            for model, held in leases.items()
        }
        incarnation = next((held.incarnation for held in leases.values()), "")
        step, renewed = self.residency.renew(holder, incarnation, uses, self.now)
        if gets:
            for model in list(leases):
                held = leases[model]
                alive = model not in renewed.lost
                if alive:
                    assert self.states[model] == "resident"
                    held.incarnation = renewed.incarnation
                if alive or (held.in_flight and self.states.get(model) in ("resident", "draining")):
                    held.until = max(held.until, self.now - delay + renewed.lease_seconds)
                held.open = held.open and alive
                if not alive and not held.in_flight and held.until <= self.now:
                    del leases[model]
        self.take(step)
        return renewed

    def release(self, holder: str, model: str) -> None:
        held = self.proxies[holder].pop(model)
        self.take(self.residency.release(holder, held.incarnation, (model,), self.now))

    def listed(self, model: str) -> lease.Listed:
        (found,) = [each for each in self.residency.listing(self.now).models if each.model == model]
        return found

    @property
    def leaked(self) -> int:
        return self.residency.listing(self.now).leaked_bytes

    def leave(self) -> None:
        self.leaving = True
        self.take(self.residency.leave(self.now))

    def answered(self, ticket: object) -> lease.Granted | lease.Refusal:
        assert isinstance(ticket, Ticket), ticket
        return self.answers[ticket.number]

    def answer(self, ticket: object) -> lease.Granted | lease.Refusal:
        self.until(lambda: not self.open)
        return self.answered(ticket)

    def busy(self, holder: str, model: str, wait: float | None) -> float:
        answer = self.ask(holder, model, wait)
        assert isinstance(answer, lease.Busy), answer
        return answer.retry_after

    # --- settings
    def configure(self) -> Step:
        return self.take(self.residency.configure(self.rules, self.specs, self.now))

    def change(self, name: str, **changes: object) -> Step:
        spec = self.specs.get(name) or ModelSpec(name)
        self.specs[name] = replace(spec, **changes)  # type: ignore[arg-type]
        return self.configure()

    def change_rules(self, **changes: object) -> Step:
        self.rules = replace(self.rules, **changes)  # type: ignore[arg-type]
        return self.configure()

    # --- Triton
    @property
    def working(self) -> int:
        return next(iter(self.at_work))

    def end_load(self, number: int, error: str | None = None, copied_seconds: float = 0.0) -> Step:
        begun = self.at_work.pop(number)
        assert isinstance(begun.command, Load)
        sizes = {piece: self.size(piece) for piece in begun.pieces}
        spec = self.specs.get(begun.command.model)
        if error is None:
            self.loaded.update(sizes)
        elif spec and spec.parts:  # The parts were loaded, but not the ensemble.
            self.loaded.update({piece: size for piece, size in sizes.items() if piece != spec.name})
        return self.take(
            self.residency.load_ended(
                number, self.now, error, None if error else sum(sizes.values()), begun.command.versions, copied_seconds
            )
        )

    def end_unload(self, number: int, error: str | None = None, *, lingers: bool = False, leaks: bool = False) -> Step:
        """Let an unload end. Its memory is freed immediately, later, or never."""
        begun = self.at_work.pop(number)
        if error is None:
            for piece in begun.pieces:
                size = self.loaded.pop(piece, 0)
                self.lingering += size if lingers and not leaks else 0
                self.lost += size if leaks else 0
            for piece in list(self.loaded):  # An ensemble is not READY without its parts.
                if piece in self.specs and not set(self.specs[piece].parts) <= self.loaded.keys():
                    self.lingering += self.loaded.pop(piece)
        return self.take(self.residency.unload_ended(number, self.now, error))

    def size(self, piece: str) -> int:
        spec = self.specs.get(piece)
        return self.real.get(piece, (spec.footprint_bytes or 0) if spec else 5)

    def read(self) -> Step:
        return self.take(self.residency.memory(BASE + sum(self.loaded.values()) + self.lingering + self.lost, self.now))

    def index(self) -> ServerInventory:
        loading = [each.command.model for each in self.at_work.values() if isinstance(each.command, Load)]
        unloading = [p for each in self.at_work.values() if isinstance(each.command, Unload) for p in each.pieces]
        resident = [piece for piece in self.loaded if piece not in unloading]
        return ServerInventory(tuple(resident), tuple(loading), tuple(unloading))

    def restart_policy(self) -> None:
        self.starts += 1
        self.open.clear()
        self.excused = True
        self.leaving = False
        self.states = {}
        self.residency = Residency(self.rules, f"start-{self.starts}", self.now)
        self.configure()
        if self.up:
            self.recover()

    def recover(self) -> None:
        before, self.at_work = self.at_work, {}
        for begun in before.values():  # Under unknown numbers. An unload has each piece by itself.
            if isinstance(begun.command, Load):
                if begun.pieces:  # Else it was READY before.
                    self.at_work[-len(self.at_work) - 1] = begun
            else:
                for piece in begun.pieces:
                    number = -len(self.at_work) - 1
                    self.at_work[number] = Begun(Unload(number, piece, (piece,)), (piece,))
        self.take(self.residency.recover(self.index(), self.now))
        self.read()

    def lose_triton(self) -> None:
        self.up = False
        self.loaded.clear()
        self.at_work.clear()
        self.lingering = self.lost = 0
        for leases in self.proxies.values():
            leases.clear()
        self.take(self.residency.server_lost(self.now))

    def triton_back(self) -> None:
        self.up = True
        self.take(self.residency.recover(self.index(), self.now))
        self.read()

    # --- time
    def advance(self, seconds: float) -> None:
        """Let time pass, with ticks at every deadline."""
        until = self.now + seconds
        for _ in range(10_000):
            at = self.residency.next_deadline()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.take(self.residency.tick(self.now))
            later = self.residency.next_deadline()
            assert later is None or later > self.now, "what is due stays due"
        else:
            raise AssertionError("deadlines without end")
        self.jump(until - self.now)

    def jump(self, seconds: float) -> None:
        """Let time pass in one jump, without ticks."""
        self.now += seconds
        self.take(self.residency.tick(self.now))

    def finish(self) -> None:
        for number, begun in list(self.at_work.items()):
            if number in self.at_work:
                if isinstance(begun.command, Load):
                    self.end_load(number)
                else:
                    self.end_unload(number)
        self.lingering = 0
        if self.up:
            self.read()

    def end_of_requests(self, then: float = 0.0) -> None:
        for holder, leases in self.proxies.items():
            for model in list(leases):
                self.release(holder, model)
        if then:
            self.advance(then)

    def until(self, met: Callable[[], bool], seconds: float = 600.0) -> None:
        end = self.now + seconds
        while not met():
            assert self.now < end, "it never came to be"
            self.finish()
            if not met():
                self.advance(1.0)

    def copy(self) -> "World":
        return copy.deepcopy(self)


# Worlds that several tests use, and helpers
def started(*arguments: object, **more: object) -> World:
    world = World(*arguments, **more)  # type: ignore[arg-type]
    world.recover()
    return world


def had(world: World, name: str, holder: str = "p1") -> None:
    answer = world.ask(holder, name, None)
    answer = world.answer(answer) if isinstance(answer, Ticket) else answer
    assert isinstance(answer, lease.Granted), answer


def full(sizes: dict[str, int], rules: PoolSettings = RULES, **more: object) -> World:
    """A world in which a, b, … were loaded in turn while they fitted, and released immediately."""
    world = started(specs(sizes, **more), rules)
    room = rules.capacity_bytes
    for name, size in sizes.items():
        if size <= room:
            room -= size
            used(world, name)
            world.advance(1.0)
    return world


def used(world: World, name: str) -> None:
    had(world, name)
    world.release("p1", name)


def unloads(world: World) -> list[str]:
    return [name for each in world.at_work.values() if isinstance(each.command, Unload) for name in each.command.names]


def under_way(world: World) -> Begun:
    (begun,) = world.at_work.values()
    return begun
