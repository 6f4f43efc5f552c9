import random
from collections import defaultdict
from functools import partial

import hypothesis
from hypothesis import strategies as st
from tidegate_contracts.lease import State
from tidegate_contracts.placement import NotNow
from tidegate_eviction.core.leases import JITTER, LATE_SECONDS
from tidegate_eviction.core.pool import BARRED
from tidegate_eviction.simulate.engine import Simulation
from tidegate_eviction.simulate.trace import Trace

from lab.bench.eviction.offline import shipped
from tests.counts import examples

from .plain import trace_of


class Returning(Simulation):
    """Each caller retries at `Retry-After` or a little later, a limited number of times."""

    def __init__(self, trace: Trace, share: int, seed: int) -> None:
        super().__init__(trace, shipped(trace, share))
        self.pool = self._replicas[0]._core._pool
        self.chance = random.Random(seed)
        self.refusals: dict[int, list[tuple[float, bool]]] = defaultdict(list)
        """By call: the refusals as busy, and whether a load of known duration was in progress."""
        self.broken: list[str] = []

    def refused(self, position: int, which: int, why: NotNow) -> None:
        model, refusals = self.pool.models[self._trace.models[which].name], self.refusals[position]
        if refusals and not self.is_out_of_hand(which, why, *refusals[-1]):
            self.broken.append(f"{self.now:.2f}: {model.name} is refused after {refusals}: {why}")
        refusals.append((self.now, why.reason == State.LOADING and self.pool.load_measured(model) is not None))
        if len(refusals) <= 4:
            late = self.chance.uniform(0, JITTER * why.retry_after + LATE_SECONDS)
            self.later(why.retry_after + late, partial(self._ask, position, which))
        else:
            super().refused(position, which, why)

    def is_out_of_hand(self, which: int, why: NotNow, since: float, was_known: bool) -> bool:
        pool, model = self.pool, self.pool.models[self._trace.models[which].name]
        if why.reason == State.LOADING:  # Longer than the wait: it began only now, or its duration was unknown.
            return not was_known and (model.operation.since >= since or self.pool.load_measured(model) is None)
        if why.reason == "queued" or BARRED in why.why:
            return bool(pool.loads or pool.by_state[State.QUEUED])
        unleased = [each for each in pool.by_state[State.RESIDENT].values() if each.evictable_if_forced_at <= self.now]
        return sum(each.candidate.bytes for each in unleased) + pool.free + pool.ledger.pending < pool.needed(model)


def day(seed: int, gap: float) -> Trace:
    chance = random.Random(seed)
    kinds = [(chance.randint(20, 100), chance.choice([2, 15, 45, 90]) * chance.uniform(0.7, 1), 0.5) for _ in range(8)]
    calls = sorted((chance.uniform(1, 7200), chance.randrange(8)) for _ in range(round(7200 / gap)))
    return trace_of(calls, *kinds)


@examples(40)
@hypothesis.given(st.integers(0, 2**32), st.sampled_from([20.0, 60.0, 200.0]), st.sampled_from([25, 40, 60]))
def test_a_caller_that_returns_in_time_is_served_unless_leases_or_a_long_load_prevent_it(
    seed: int, gap: float, share: int
) -> None:
    world = Returning(day(seed, gap), share, seed)
    world.run()
    assert not world.broken, world.broken[:3]


@examples(40)
@hypothesis.given(st.integers(0, 2**32), st.floats(21, 400))
def test_callers_of_a_model_that_loads_for_longer_than_they_wait_are_answered_when_they_come_back_once(
    seed: int, load: float
) -> None:
    """Each calls once, long after the one before, and others have taken the memory meanwhile."""
    chance = random.Random(seed)
    calls, at = [], 1.0
    for _ in range(12):
        calls += [(at, 0), (at + load + 600, 1)]
        at += load + chance.uniform(1500, 3000)
    world = Returning(trace_of(calls, (60, load, 0.1), (60, 3.0, 0.1)), 50, seed)
    world.run()
    others = [refusals for position, refusals in world.refusals.items() if position]  # The first one measured its load.
    assert len(others) > 5
    assert all(len(refusals) == 1 for refusals in others)
