"""The core under everything that can happen to it, in any order: what must always hold, holds."""

import random
from collections.abc import Callable
from dataclasses import replace

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tidegate_contracts import lease
from tidegate_eviction.core.events import Load, Ticket, Unload
from tidegate_eviction.core.rules import ModelSpec, WarmWindow
from tidegate_eviction.policies.registry import BUILT_IN

from .books import RULES
from .world import World

SPECS = {
    spec.name: spec
    for spec in (
        ModelSpec("a", footprint_bytes=40),
        ModelSpec("b", footprint_bytes=40, load_seconds=8.0),
        ModelSpec("c", footprint_bytes=30),
        ModelSpec("d", footprint_bytes=60, idle_seconds=8.0),
        ModelSpec("e", estimate_bytes=20, estimate_from="estimated", idle_seconds=0.0),
        ModelSpec("f"),
        ModelSpec("pair", footprint_bytes=5, parts=("c", "part")),
        ModelSpec("trio", footprint_bytes=5, parts=("part", "more")),
        ModelSpec("part", footprint_bytes=25, callable=False),
        ModelSpec("more", estimate_bytes=10, estimate_from="estimated", callable=False),
        ModelSpec("huge", footprint_bytes=101),
    )
}
REAL = {"e": 35, "f": 12, "more": 8, "b": 38}
MODELS = st.sampled_from([*"abcd" * 3, "e", "f", "pair", "pair", "trio", "trio", "huge", "nobody"])
HOLDERS = st.sampled_from(["p1", "p2"])
DELAYS = st.sampled_from([0.0, 0.0, 0.0, 0.5, 3.0])
HEARD = st.sampled_from([True, True, True, False])
SPANS = st.sampled_from([0.0, 0.25, 1.0, 4.0, 5.0, 8.0, 16.0, 60.0, 100.0])
WHICH = st.integers(0, 7)


class Core(RuleBasedStateMachine):
    """Proxies, a Triton and its memory, an admin and a clock, all of them hostile."""

    @initialize(policy=st.sampled_from(sorted(BUILT_IN)), measures=st.booleans(), found=st.booleans())
    def start(self, policy: str, measures: bool, found: bool) -> None:
        rules = replace(RULES, policy=BUILT_IN[policy], measures=measures)
        self.world = World(dict(SPECS), rules, dict(REAL))
        if found:
            self.world.loaded = {"a": 40, "stranger": 5}
            self.world.excused = True
        self.world.recover()

    # Proxies

    @rule(holder=HOLDERS, model=MODELS, wait=st.sampled_from([None, None, 0.0, 2.0, 99.0]), delay=DELAYS, heard=HEARD)
    def ask(self, holder: str, model: str, wait: float | None, delay: float, heard: bool) -> None:
        world = self.world
        loads = world.loads.count(model)
        answer = world.ask(holder, model, wait, delay, heard=heard)
        assert world.loads.count(model) - loads <= 1
        if model == "nobody":
            assert isinstance(answer, lease.Unknown) or (world.leaving and isinstance(answer, lease.Busy))
        if isinstance(answer, lease.Busy):
            assert 0 <= answer.retry_after <= world.rules.retry_most_seconds
            if answer.why.startswith(f"{model} is queued") and self._calm():
                self._comes_back(model, answer)

    def _calm(self) -> bool:
        world = self.world
        freeing = world.residency.listing(world.now).freeing_bytes
        pinned = any(spec.pinned for spec in world.specs.values())
        return world.up and not (world.at_work or freeing or world.open or world.windows or pinned or world.leaving)

    def _comes_back(self, model: str, busy: lease.Busy) -> None:
        """Who asks again exactly when he was told, and nothing else happened, is granted or has a load begin."""
        if busy.retry_after >= self.world.rules.retry_most_seconds:
            return
        world = self.world.copy()
        world.advance(busy.retry_after)
        answer = world.ask("p2", model, None)
        assert not isinstance(answer, lease.Busy), f"told {busy}, then {answer}"
        if isinstance(answer, Ticket):
            assert world.at_work, f"told {busy}, and nothing began"

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        if self.world.open:
            ticket = self.world.open.pop(list(self.world.open)[which % len(self.world.open)])
            self.world.take(self.world.residency.cancel(ticket, self.world.now))

    @rule(holder=HOLDERS, delay=DELAYS, heard=HEARD)
    def renew(self, holder: str, delay: float, heard: bool) -> None:
        self.world.renew(holder, delay, heard=heard)

    def renew_all(self) -> None:
        for holder in self.world.proxies:
            self.world.renew(holder)

    @rule(model=MODELS, holder=HOLDERS, ends=st.booleans())
    def serve(self, model: str, holder: str, ends: bool) -> None:
        """Somebody asks, and all goes well."""
        self.world.ask(holder, model, None)
        self.all_goes_well()
        if ends:
            self.all_goes_well()
            self.end_requests()

    @rule(holder=HOLDERS, which=WHICH, how=st.sampled_from(["begin", "end", "release"]))
    def use(self, holder: str, which: int, how: str) -> None:
        """A request begins or ends under a lease, or the lease is given back."""
        world = self.world
        leases = world.proxies[holder]
        if how == "begin":
            models = [model for model, held in leases.items() if held.open and world.now < held.until]
        elif how == "end":
            models = list(leases)
        else:
            models = [model for model, held in leases.items() if not held.in_flight]
        if not models:
            return
        model = models[which % len(models)]
        held = leases[model]
        if how == "begin":
            assert world.states.get(model) in ("resident", "draining"), "a lease on what is not loaded"
            held.in_flight += 1
        elif how == "end":
            held.in_flight, held.last_use = 0, world.now
        else:
            world.release(holder, model)

    @rule()
    def end_requests(self) -> None:
        for leases in self.world.proxies.values():
            for held in leases.values():
                held.in_flight, held.last_use = 0, (self.world.now if held.in_flight else held.last_use)

    @rule(seconds=SPANS)
    def everybody_is_idle(self, seconds: float) -> None:
        """Requests end, leases are renewed for a while, and then not."""
        self.end_requests()
        self.renew_all()
        self.world.advance(seconds)

    # Triton

    @rule(which=WHICH, fails=st.sampled_from([False, False, False, True]))
    def end_load(self, which: int, fails: bool) -> None:
        loads = [n for n, begun in self.world.at_work.items() if isinstance(begun.command, Load)]
        if loads:
            self.world.end_load(loads[which % len(loads)], "no such operator" if fails else None)

    @rule(which=WHICH, how=st.sampled_from(["well", "well", "lingers", "leaks", "fails"]))
    def end_unload(self, which: int, how: str) -> None:
        unloads = [n for n, begun in self.world.at_work.items() if isinstance(begun.command, Unload)]
        if unloads:
            number = unloads[which % len(unloads)]
            error = "timed out" if how == "fails" else None
            self.world.end_unload(number, error, lingers=how == "lingers", leaks=how == "leaks")

    def read(self) -> None:
        if self.world.up:
            self.world.read()

    @rule()
    def memory_comes_back(self) -> None:
        self.world.lingering = 0
        self.read()

    @rule()
    def all_goes_well(self) -> None:
        """What is under way ends, and its memory is back."""
        self.world.finish()

    @rule(model=MODELS)
    def ask_for_what_fails(self, model: str) -> None:
        """A load fails at once, and the next one, until it is not tried any more."""
        for _ in range(3):
            self.world.ask("p1", model, None)
            self.all_goes_wrong()
            self.all_goes_well()
            self.world.advance(16.0)

    def all_goes_wrong(self) -> None:
        for number, begun in list(self.world.at_work.items()):
            if number in self.world.at_work and isinstance(begun.command, Load):
                self.world.end_load(number, "out of memory")

    @rule(what=st.sampled_from(["policy", "policy", "triton", "both", "leave"]), back=SPANS, sure=st.integers(0, 5))
    def disaster(self, what: str, back: float, sure: int) -> None:
        """Something ends, and is there again after a while."""
        world = self.world
        if sure:  # not too often, or nothing else happens
            return
        if what in ("triton", "both") and world.up:
            world.lose_triton()
        if what in ("policy", "both"):
            world.restart_policy()
        if what == "leave":
            world.leaving = True
            world.take(world.residency.leave(world.now))
            assert not world.open
            self.ask("p1", "a", None, 0.0, heard=True)
            self.renew_all()
        world.advance(back)
        if what == "leave":
            world.restart_policy()

    @rule()
    def triton_back(self) -> None:
        if not self.world.up:
            self.world.triton_back()

    # The policy and its settings

    @rule(model=MODELS)
    def retry(self, model: str) -> None:
        self.world.take(self.world.residency.retry(model, self.world.now))

    @rule(model=MODELS, how=st.sampled_from(["changed", "changed", "removed", "pinned", "back"]))
    def change_model(self, model: str, how: str) -> None:
        world = self.world
        if model not in SPECS:
            return
        spec = world.specs.get(model)
        if spec is None or how == "back":
            world.specs[model] = SPECS[model]
        elif how == "removed" and not spec.parts:
            del world.specs[model]
        elif how == "changed":
            world.specs[model] = replace(spec, stamp=spec.stamp + "x")
        elif how == "pinned":
            world.specs[model] = replace(spec, pinned=not spec.pinned)
        self._configure()

    @rule(
        capacity=st.sampled_from([100, 100, 80, 130]),
        policy=st.sampled_from(sorted(BUILT_IN)),
        lease_seconds=st.sampled_from([16.0, 16.0, 24.0]),
        measures=st.booleans(),
        sure=st.integers(0, 2),
    )
    def change_rules(self, capacity: int, policy: str, lease_seconds: float, measures: bool, sure: int) -> None:
        if not sure:
            self.world.rules = replace(
                self.world.rules,
                capacity_bytes=capacity,
                policy=BUILT_IN[policy],
                lease_seconds=lease_seconds,
                measures=measures,
            )
            self._configure()

    @rule(models=st.sets(MODELS, min_size=1, max_size=2), ahead=SPANS, lasts=SPANS, sure=st.integers(0, 2))
    def change_windows(self, models: set[str], ahead: float, lasts: float, sure: int) -> None:
        if not sure:
            opens = self.world.now + ahead
            self.world.windows = (WarmWindow("nightly", tuple(sorted(models)), opens, opens + lasts),)
            self._configure()

    def _configure(self) -> None:
        world = self.world
        world.take(world.residency.configure(world.rules, world.specs, world.windows, world.now))

    # Time

    @rule(seconds=SPANS, how=st.sampled_from(["ticks", "ticks", "jumps", "stands", "goes back"]))
    def time(self, seconds: float, how: str) -> None:
        if how == "ticks":
            self.world.advance(seconds)
        elif how == "jumps":  # nobody was there to tick
            self.world.jump(seconds)
        else:
            self.world.take(self.world.residency.tick(self.world.now - (seconds if how == "goes back" else 0)))

    def teardown(self) -> None:
        """Whatever has happened: once things go well, every model that can be had is had."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.windows = ()
        world.specs = dict(SPECS)
        world.rules = replace(world.rules, policy=BUILT_IN["lru-idle"], capacity_bytes=100)
        world.real = {}
        self._configure()
        if not world.up:
            world.triton_back()
        for leases in world.proxies.values():
            leases.clear()
        for name in SPECS:
            world.take(world.residency.retry(name, world.now))
        self._settle()
        for name, spec in SPECS.items():
            if spec.callable and name != "huge":
                self._is_had(name)

    def _settle(self) -> None:
        world = self.world
        for _ in range(200):
            self.all_goes_well()
            if world.recycled:
                world.recycled = 0
                world.lose_triton()
                world.triton_back()
            world.advance(1.0)
            if not (world.at_work or world.open or world.residency.listing(world.now).freeing_bytes):
                return
        raise AssertionError("it never settles")

    def _is_had(self, name: str) -> None:
        world = self.world
        for _ in range(20):
            answer = world.ask("p1", name, None)
            if isinstance(answer, Ticket):
                self._settle()
                answer = world.answers[answer.number]
            if isinstance(answer, lease.Granted):
                world.release("p1", name)
                return
            assert isinstance(answer, lease.Busy), answer
            world.advance(answer.retry_after)
            self._settle()
        raise AssertionError(f"{name} is never had: {answer}")


Core.TestCase.settings = hypothesis.settings(
    max_examples=hypothesis.settings.default.max_examples,  # type: ignore[union-attr]
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
TestCore = Core.TestCase

NAMES = [name for name, spec in SPECS.items() if spec.callable]
SECONDS = (0.0, 0.25, 1.0, 4.0, 8.0, 16.0, 30.0, 100.0)


def walk(core: Core, chance: random.Random) -> None:
    """Take a step, of those that make up a day more often than of those that ruin it."""
    model, holder, seconds = chance.choice(NAMES), chance.choice(["p1", "p2"]), chance.choice(SECONDS)
    which, sure, flip = chance.randrange(8), chance.randrange(3), chance.random() < 0.5
    wait, delay, heard = chance.choice([None, None, 0.0, 2.0]), chance.choice([0.0, 0.5]), chance.random() < 0.9
    steps: dict[Callable[[], None], int] = {
        lambda: core.ask(holder, model, wait, delay, heard): 12,
        lambda: core.serve(model, holder, flip): 10,
        lambda: core.ask_for_what_fails(model): 1,
        lambda: core.renew(holder, chance.choice([0.0, 0.5, 3.0]), chance.random() < 0.8): 6,
        lambda: core.use(holder, which, chance.choice(["begin", "end", "end", "release"])): 8,
        lambda: core.end_requests(): 1,
        lambda: core.everybody_is_idle(seconds): 4,
        lambda: core.end_load(which, chance.random() < 0.15): 8,
        lambda: core.end_unload(which, chance.choice(["well", "well", "well", "lingers", "leaks", "fails"])): 8,
        lambda: core.memory_comes_back(): 4,
        lambda: core.all_goes_well(): 1,
        lambda: core.cancel(which): 1,
        lambda: core.disaster(chance.choice(["policy", "triton", "both", "leave"]), seconds, sure): 2,
        lambda: core.triton_back(): 2,
        lambda: core.retry(model): 1,
        lambda: core.change_model(model, chance.choice(["changed", "removed", "pinned", "back", "back"])): 1,
        lambda: core.change_rules(
            chance.choice([80, 100, 130]), chance.choice(sorted(BUILT_IN)), chance.choice([16.0, 24.0]), flip, sure
        ): 1,
        lambda: core.change_windows({model}, seconds, chance.choice(SECONDS), sure): 1,
        lambda: core.time(seconds, chance.choice(["ticks", "ticks", "jumps", "stands", "goes back"])): 8,
    }
    chance.choices(list(steps), list(steps.values()))[0]()


@hypothesis.given(st.integers(0, 2**64 - 1))
@hypothesis.settings(deadline=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))
def test_a_long_walk(seed: int) -> None:
    chance = random.Random(seed)
    core = Core()
    core.start(chance.choice(sorted(BUILT_IN)), measures=chance.random() < 0.8, found=chance.random() < 0.3)
    for _ in range(150):
        walk(core, chance)
    core.teardown()
