"""Ten thousand models: work grows at most in proportion. The tests count calls, because times depend on the machine."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest
from tidegate_eviction.core.messages import Load, ModelSpec, PoolSettings, ServerInventory, Ticket, Unload
from tidegate_eviction.core.residency import Residency
from tidegate_eviction.policies.registry import find

RULES = PoolSettings(
    capacity_bytes=0, policy=find("lru-idle"), residency_factor=0.0, measures=False,
    idle_seconds=0.0, lease_seconds=15.0, wait_seconds=10.0,
)  # fmt: skip


def calls(task: Callable[..., object], *given: object) -> int:
    """Return the number of function calls of a task, including C functions."""
    count = 0

    def seen(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        task(*given)
    finally:
        sys.setprofile(None)
    return count


def full(residents: int, policy: str) -> Residency:
    rules = replace(RULES, capacity_bytes=10 * residents, policy=find(policy))
    residency = Residency(rules, "one")
    specs = {f"m{n}": ModelSpec(f"m{n}", footprint_bytes=10, load_seconds=1.0 + n % 7) for n in range(residents + 1)}
    residency.configure(rules, specs, 0.0)
    residency.recover(ServerInventory(tuple(f"m{n}" for n in range(residents))), 0.0)
    residency.tick(20.0)
    return residency


@pytest.mark.parametrize("policy", ["break-even", "lru-idle", "cost-aware"])
def test_a_decision_grows_no_faster_than_the_residents(policy: str) -> None:
    def decide(residency: Residency, residents: int) -> None:
        step, answer = residency.acquire(f"m{residents}", "p", None, 20.0)
        assert isinstance(answer, Ticket)
        assert any(isinstance(command, Unload) for command in step.commands)

    few, many = (calls(decide, full(residents, policy), residents) for residents in (1_000, 10_000))
    assert many <= 11 * few


def test_a_lease_on_a_resident_model_costs_the_same_however_many_there_are() -> None:
    def use(residency: Residency) -> None:
        residency.acquire("m5", "p", None, 21.0)
        residency.release("p", "one", ["m5"], 22.0)

    few, many = (calls(use, full(residents, "lru-idle")) for residents in (1_000, 10_000))
    assert few == many


def test_a_load_and_its_end_cost_the_same_however_many_there_are() -> None:
    def load(residency: Residency, models: int) -> None:
        step, _ = residency.acquire(f"m{models}", "p", None, 21.0)
        (command,) = step.commands
        assert isinstance(command, Load)
        residency.load_ended(command.number, 22.0)

    counts = []
    for models in (1_000, 10_000):
        residency = full(models, "lru-idle")
        residency.configure(replace(RULES, capacity_bytes=20 * models), residency._pool.specs, 20.0)
        counts.append(calls(load, residency, models))
    assert counts[1] == pytest.approx(counts[0], rel=0.05)
