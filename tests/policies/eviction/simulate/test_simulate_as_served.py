"""One trace through the simulator, and through real proxies and policies: the same outcomes, one by one."""

import random

import pytest
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import Simulation, SimulationSetting
from tidegate_eviction.simulate.trace import Trace

from .plain import trace_of
from .served import served

TICK_SECONDS = 0.02  # Timers of a process are late by a millisecond, and are set one after the other.


def made(seed: int, requests: int = 400, models: int = 12, seconds: float = 1800.0) -> Trace:
    chance = random.Random(seed)
    kinds = [
        (chance.randint(5, 30), chance.choice([0.5, 2, 8]) * chance.uniform(0.8, 1.2), chance.uniform(0.05, 3))
        for _ in range(models)
    ]
    often = [1 / (rank + 1) for rank in range(models)]
    times = sorted(chance.uniform(1, seconds) for _ in range(requests))
    return trace_of(list(zip(times, chance.choices(range(models), often, k=requests), strict=True)), *kinds)


@pytest.mark.parametrize(("replicas", "proxies", "wait"), [(1, 1, 6), (1, 2, 6), (2, 1, 10), (2, 2, 10)])
@pytest.mark.parametrize(("policy", "seed"), [("lru-idle", 0), ("cost-aware", 1), ("break-even", 2)])
def test_the_simulator_answers_each_request_as_proxies_and_policies_do(
    policy: str, seed: int, replicas: int, proxies: int, wait: float
) -> None:
    trace = made(seed)
    setting = SimulationSetting(
        find(policy), round(0.4 * trace.total_bytes / replicas) + 15 * (replicas > 1), idle_seconds=15,
        wait_seconds=wait, replicas=replicas, holders=proxies, lease_seconds=15,
    )  # fmt: skip
    real, names = served(trace, setting)
    outcome = Simulation(trace, setting, names).run()
    simulated = dict(zip(outcome.positions, outcome.waits, strict=True))
    assert {position for position, waited in real.items() if waited is None} == real.keys() - simulated.keys()
    for position, waited in simulated.items():
        assert real[position] == pytest.approx(waited, abs=TICK_SECONDS), (position, trace.seconds[position])
    assert outcome.busy, "some are refused"
    assert sum(waited > 1 for waited in simulated.values()) > 20, "and some wait"


def test_each_caller_waits_for_its_own_time_though_one_before_it_was_refused_during_the_same_load() -> None:
    trace = trace_of([(1.0, 0), (1.5, 0), (7.0, 0), (15.0, 0)], (10, 25.0, 0.1))
    setting = SimulationSetting(find("break-even"), 10, wait_seconds=20, lease_seconds=15)
    real, _ = served(trace, setting)
    assert real == {0: None, 1: None, 2: pytest.approx(19.0), 3: pytest.approx(11.0)}, "1 waits together with 0"
    outcome = Simulation(trace, setting).run()
    assert dict(zip(outcome.positions, outcome.waits, strict=True)) == pytest.approx({2: 19.0, 3: 11.0})
