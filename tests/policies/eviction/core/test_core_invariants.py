import random
from collections.abc import Sequence
from dataclasses import replace

import hypothesis
from hypothesis import strategies as st
from tidegate_contracts import lease
from tidegate_eviction.core.messages import Load, ModelSpec, PoolSettings, Ticket, Unload
from tidegate_eviction.policies.policy import guarded
from tidegate_eviction.policies.registry import BUILT_IN

from ..policies.hostile import whimsical
from .world import RULES, World

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
MODELS = [*"abcd" * 3, *"ef" * 2, "pair", "pair", "trio", "trio", "huge", "absent"]
POLICIES = {**BUILT_IN, "custom": guarded(whimsical)}
SECONDS = (0.0, 0.25, 1.0, 4.0, 5.0, 8.0, 16.0, 30.0, 60.0, 100.0)
STEPS = 200


class Walk:
    def __init__(self, seed: int, policies: Sequence[str] = tuple(sorted(POLICIES))) -> None:
        self.chance, self.policies = random.Random(seed), policies
        self.choice = self.chance.choice
        rules = replace(
            RULES, policy=POLICIES[self.choice(self.policies)], measures=self.chance.random() < 0.8,
            first_load_margin=self.choice([0.0, PoolSettings.first_load_margin]),
        )  # fmt: skip
        self.world = World(dict(SPECS), rules, dict(REAL))
        if self.chance.random() < 0.3:
            self.world.loaded = {"a": 40, "stranger": 5}
            self.world.excused = True
        self.world.recover()

    def holder(self) -> str:
        return self.choice(["p1", "p2"])

    # Proxies

    def ask(self) -> None:
        wait, delay = self.choice([None, None, 0.0, 2.0, 99.0]), self.choice([0.0, 0.0, 0.5, 3.0])
        self.asks(self.choice(MODELS), self.holder(), wait, delay, gets=self.chance.random() < 0.9)

    def asks(self, model: str, holder: str, wait: float | None = None, delay: float = 0.0, gets: bool = True) -> None:
        world = self.world
        loads = world.loads.count(model)
        answer = world.ask(holder, model, wait, delay, gets=gets)
        assert world.loads.count(model) - loads <= 1
        if model == "absent":
            assert isinstance(answer, lease.Unknown) or (world.leaving and isinstance(answer, lease.Busy))
        if isinstance(answer, lease.Busy):
            assert answer.retry_after >= 0
            assert answer.reason == "loading" or answer.retry_after <= world.rules.retry_most_seconds
            assert answer.reason is not None, answer.why
            if answer.why.startswith(f"{model} is queued") and self.calm():
                self.comes_back(model, answer)

    def calm(self) -> bool:
        world = self.world
        freeing = world.residency.listing(world.now).freeing_bytes
        pinned = any(spec.pinned for spec in world.specs.values())
        leased = world.residency.leases  # Which the holders may release earlier.
        busy = world.at_work or freeing or world.open or pinned or world.leaving
        return world.up and not (busy or leased)

    def comes_back(self, model: str, busy: lease.Busy) -> None:
        """A caller that returns exactly on time, with no other event meanwhile, gets a lease, or a load begins."""
        if busy.retry_after >= self.world.rules.retry_most_seconds:
            return
        world = self.world.copy()
        world.advance(busy.retry_after)
        answer = world.ask("p2", model, None)
        assert not isinstance(answer, lease.Busy), f"{busy}, then {answer}"
        if isinstance(answer, Ticket):
            assert world.at_work, f"the caller got {busy}, but nothing began"

    def cancel(self) -> None:
        if self.world.open:
            ticket = self.world.open.pop(self.choice(list(self.world.open)))
            self.world.take(self.world.residency.cancel(ticket, self.world.now))

    def renew(self) -> None:
        self.world.renew(self.holder(), self.choice([0.0, 0.0, 0.5, 3.0]), gets=self.chance.random() < 0.8)

    def serve(self) -> None:
        self.asks(self.choice(MODELS), self.holder())
        self.world.finish()
        if self.chance.random() < 0.5:
            self.world.finish()
            self.end_requests()

    def use(self) -> None:
        world, holder, how = self.world, self.holder(), self.choice(["begin", "end", "end", "release"])
        leases = {
            model: held
            for model, held in world.proxies[holder].items()
            if how == "end" or (held.open and world.now < held.until if how == "begin" else not held.in_flight)
        }
        if not leases:
            return
        model, held = self.choice(list(leases.items()))
        if how == "begin":
            assert world.states.get(model) in ("resident", "draining"), "a lease on what is not loaded"
            held.in_flight += 1
        elif how == "end":
            held.in_flight, held.last_use = 0, world.now
        else:
            world.release(holder, model)

    def end_requests(self) -> None:
        for leases in self.world.proxies.values():
            for held in leases.values():
                held.in_flight, held.last_use = 0, (self.world.now if held.in_flight else held.last_use)

    def everybody_is_idle(self) -> None:
        self.end_requests()
        for holder in self.world.proxies:
            self.world.renew(holder)
        self.world.advance(self.choice(SECONDS))

    # Triton

    def working(self, kind: type) -> list[int]:
        return [number for number, begun in self.world.at_work.items() if isinstance(begun.command, kind)]

    def end_load(self) -> None:
        if loads := self.working(Load):
            self.world.end_load(self.choice(loads), "no such operator" if self.chance.random() < 0.15 else None)

    def end_unload(self) -> None:
        if unloads := self.working(Unload):
            how = self.choice(["well", "well", "well", "lingers", "leaks", "fails"])
            error = "timed out" if how == "fails" else None
            self.world.end_unload(self.choice(unloads), error, lingers=how == "lingers", leaks=how == "leaks")

    def memory_comes_back(self) -> None:
        self.world.lingering = 0
        if self.world.up:
            self.world.read()

    def ask_for_what_fails(self) -> None:
        model = self.choice(MODELS)
        for _ in range(3):
            self.world.ask("p1", model, None)
            for number in self.working(Load):
                if number in self.world.at_work:
                    self.world.end_load(number, "out of memory")
            self.world.finish()
            self.world.advance(16.0)

    def disaster(self) -> None:
        world, what = self.world, self.choice(["policy", "triton", "both", "leave"])
        if self.chance.random() < 2 / 3:  # Not too often, or nothing else would happen.
            return
        if what in ("triton", "both") and world.up:
            world.lose_triton()
        if what in ("policy", "both"):
            world.restart_policy()
        if what == "leave":
            world.leave()
            assert not world.open
            self.asks("a", "p1")
            for holder in world.proxies:
                world.renew(holder)
        world.advance(self.choice(SECONDS))
        if what == "leave":
            world.restart_policy()

    def triton_back(self) -> None:
        if not self.world.up:
            self.world.triton_back()

    # The policy and its settings

    def change_model(self) -> None:
        specs, model = self.world.specs, self.choice(list(SPECS))
        how = self.choice(["changed", "removed", "pinned", "back", "back"])
        spec = specs.get(model)
        if spec is None or how == "back":
            specs[model] = SPECS[model]
        elif how == "removed" and not spec.parts:
            del specs[model]
        elif how == "changed":
            specs[model] = replace(spec, stamp=spec.stamp + "x")
        elif how == "pinned":
            specs[model] = replace(spec, pinned=not spec.pinned)
        self.world.configure()

    def change_rules(self) -> None:
        if self.chance.random() < 1 / 3:
            self.world.change_rules(
                capacity_bytes=self.choice([100, 80, 130]),
                policy=POLICIES[self.choice(self.policies)],
                lease_seconds=max(self.world.rules.lease_seconds, self.choice([16.0, 24.0])),
                measures=self.chance.random() < 0.5,
            )

    def time(self) -> None:
        how, seconds = self.choice(["ticks", "ticks", "jumps", "stands", "goes back"]), self.choice(SECONDS)
        if how == "ticks":
            self.world.advance(seconds)
        elif how == "jumps":  # No tick happened meanwhile.
            self.world.jump(seconds)
        else:
            self.world.take(self.world.residency.tick(self.world.now - (seconds if how == "goes back" else 0)))

    def all_goes_well(self) -> None:
        self.world.finish()

    # The end

    def ends_well(self) -> None:
        """At the end, without more faults, every model that fits can be loaded."""
        world = self.world
        world.specs, world.real = {name: replace(spec, stamp="sound") for name, spec in SPECS.items()}, {}
        world.change_rules(policy=BUILT_IN["lru-idle"], capacity_bytes=100)
        self.triton_back()
        for leases in world.proxies.values():
            leases.clear()
        self.settle()
        for name, spec in SPECS.items():
            if spec.callable and name != "huge":
                self.is_had(name)

    def settle(self) -> None:
        world = self.world
        for _ in range(200):
            world.finish()
            if world.recycled:
                world.recycled = 0
                world.lose_triton()
                world.triton_back()
            world.advance(1.0)
            if not (world.at_work or world.open or world.residency.listing(world.now).freeing_bytes):
                return
        raise AssertionError("it never settles")

    def is_had(self, name: str) -> None:
        world = self.world
        for _ in range(20):
            answer = world.ask("p1", name, None)
            if isinstance(answer, Ticket):
                self.settle()
                answer = world.answers[answer.number]
            if isinstance(answer, lease.Granted):
                world.release("p1", name)
                return
            assert isinstance(answer, lease.Busy), answer
            world.advance(answer.retry_after)
            self.settle()
        raise AssertionError(f"{name} is never had: {answer}")


OFTEN = {
    Walk.ask: 12,
    Walk.serve: 10,
    Walk.use: 8,
    Walk.end_load: 8,
    Walk.end_unload: 8,
    Walk.time: 8,
    Walk.renew: 6,
    Walk.everybody_is_idle: 4,
    Walk.memory_comes_back: 4,
    Walk.disaster: 2,
    Walk.triton_back: 2,
    Walk.end_requests: 1,
    Walk.ask_for_what_fails: 1,
    Walk.all_goes_well: 1,
    Walk.cancel: 1,
    Walk.change_model: 1,
    Walk.change_rules: 1,
}
"""Ordinary actions are more frequent than faults."""


@hypothesis.example(2829466)  # Memory is kept for callers just before they return.
@hypothesis.example(511288)  # Memory was freed for two models, and leaks before either is loaded.
@hypothesis.given(st.integers(0, 2**64 - 1))
@hypothesis.settings(deadline=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))
def test_a_long_walk(seed: int) -> None:
    go(Walk(seed))


@hypothesis.given(st.integers(0, 2**64 - 1))
@hypothesis.settings(deadline=None, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))
def test_a_long_walk_with_a_hostile_policy(seed: int) -> None:
    go(Walk(seed, ["custom"]))


def go(walk: Walk) -> None:
    for step in walk.chance.choices(list(OFTEN), list(OFTEN.values()), k=STEPS):
        step(walk)
    walk.ends_well()
