"""How long one decision takes: a cold model is wanted, the slice is full, and somebody has to go.

Measured is the core as the container runs it, from the request to the commands, with a thousand and with ten thousand
models resident; and the policy's pure function alone.
"""

import statistics
import time

from tidegate_eviction.core.events import Load, Unload
from tidegate_eviction.core.residency import Residency
from tidegate_eviction.core.rules import ModelSpec, PoolRules
from tidegate_eviction.core.rules import ServerInventory as Index
from tidegate_eviction.policies.policy import Candidate
from tidegate_eviction.policies.registry import find

from lab.bench.report import Found, say

POLICIES = "cost-aware", "lru-idle"
SIZES = 1_000, 10_000
DECISIONS = 40
IDLE_SECONDS = 300.0
LONG = 1e6
"""After so many seconds, every model may go."""


def measure() -> Found:
    """Measure both sizes; the figures are cost-aware's."""
    found = Found()
    for policy in POLICIES:
        times = {}
        for size in SIZES:
            say(f"decisions of {policy} among {size:,} models …")
            times[size] = decision_microseconds(policy, size)
            alone = choice_microseconds(policy, size)
            found.add(f"decision, {policy}, {size:,} models", f"{times[size]:,.0f} µs · policy alone {alone:,.0f} µs")
        if policy == POLICIES[0]:
            found.figures["decide_us_10k"] = times[10_000]
            found.figures["decide_growth"] = times[10_000] / times[1_000]
    return found


def decision_microseconds(policy: str, resident: int) -> float:
    """Return the median time from an acquire of a cold model to the unload of others, in µs."""
    names = [f"model-{number}" for number in range(resident + DECISIONS)]
    size = 1 << 20
    rules = PoolRules(resident * size, find(policy), IDLE_SECONDS, 30.0, 60.0, measures=False)
    core = Residency(rules, "bench", 0.0)
    core.configure(rules, {name: ModelSpec(name, footprint_bytes=size) for name in names}, (), 0.0)
    core.recover(Index(resident=tuple(names[:resident])), 0.0)
    core.tick(LONG)
    times = []
    for number, name in enumerate(names[resident:]):
        now = LONG + number
        began = time.perf_counter()
        step, _ = core.acquire(name, "proxy", None, now)
        times.append(time.perf_counter() - began)
        unloads = [command for command in step.commands if isinstance(command, Unload)]
        if len(unloads) != 1:
            raise AssertionError(f"one model for one: {step.commands}")
        for load in core.unload_ended(unloads[0].number, now).commands:
            if isinstance(load, Load):
                core.load_ended(load.number, now + 0.5)
    return statistics.median(times) * 1e6


def choice_microseconds(policy: str, resident: int) -> float:
    """Return the median time of the policy's pure function, in µs; three models have to go."""
    choose = find(policy).choose
    candidates = [
        Candidate(f"model-{number}", 1 << 20, float(number * 7919 % resident), 0.0, 1.0 + number % 13, number % 17)
        for number in range(resident)
    ]
    times = []
    for number in range(DECISIONS):
        began = time.perf_counter()
        victims = list(choose(candidates, 3 << 20, LONG + number))
        times.append(time.perf_counter() - began)
        if len(victims) != 3:
            raise AssertionError(f"{policy} chose {len(victims)} of equal size, and three are needed")
    return statistics.median(times) * 1e6
