"""What needs no Triton: what the simulator says of the policies, and how long one decision takes.

The simulator plays one trace, the same requests for every policy. `lost_vs_simple_*` is what callers lose: seconds
waited, and the whole bound on waits for each who is refused. It is of the default, as the definition has it, against
the better one of two simple rules with the same leases and waits: `lru-idle` with five minutes, and `cost-aware` with
no idle limit. `lost_vs_simple_days` is the geometric mean of the same over made-up days of other kinds (`DAYS`), and
`lost_vs_simple_worst` the worst of their cells.

A decision: a cold model is wanted, the slice is full, and another one has to go. Measured is the core as the container
runs it, from the request to the commands, with a thousand and with ten thousand models resident.
"""

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace

from tidegate_eviction.core.messages import Load, ModelSpec, PoolSettings, Unload
from tidegate_eviction.core.messages import ServerInventory as Index
from tidegate_eviction.core.residency import Residency
from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Outcome, Trace
from tidegate_eviction.simulate.zoo import Workload, generate

from lab.bench.report import Figures, say
from stacks.definition.pools import OnDemand

LOST_SHARES = 25, 40, 60
IDLE_SECONDS = 300.0  # The reference's limit.
DAYS = {
    "steady": Workload(
        models=50, zipf=0.7, bursty=0.1, nightly=0.05, periodic=0.4, footprint_mb=200, load_mb_per_second=100, seed=1
    ),
    "dear loads": Workload(
        models=20, zipf=1.6, bursty=0.2, periodic=0.3, footprint_mb=200, load_mb_per_second=20, seed=1
    ),
    "dear loads, in bursts": Workload(models=20, bursty=0.8, footprint_mb=200, load_mb_per_second=20, seed=1),
    "at random": Workload(models=40, load_mb_per_second=100, seed=1),
    "sparse": Workload(models=30, requests=3_000, zipf=1.0, bursty=0.2, periodic=0.4, load_mb_per_second=50, seed=1),
}
"""Days that no factor of the default was chosen by."""


def simulated(trace: Trace) -> Figures:
    """Simulate the default and the simple rules on one trace."""
    found = Figures()
    for share in LOST_SHARES:
        found.figures[f"lost_vs_simple_{share}"] = _lost_ratio(_rows(trace, share), f"{share} %", found)
    return found


def shipped(trace: Trace, share: int) -> SimulationSetting:
    """Return what a definition that says nothing has, with room for so many per cent of all models."""
    default = OnDemand(mode="on-demand")
    return SimulationSetting(
        find(default.policy), round(share / 100 * trace.total_bytes), default.idle_seconds, default.wait_seconds,
        default.lease_seconds,
    )  # fmt: skip


def days() -> Figures:
    """Simulate the default and the simple rules on days of several kinds."""
    found = Figures()
    ratios = []
    for name, zoo in DAYS.items():
        trace = generate(zoo)
        ratios += [_lost_ratio(_rows(trace, share), f"{name}, {share} %", found) for share in LOST_SHARES]
    found.figures |= {"lost_vs_simple_days": statistics.geometric_mean(ratios), "lost_vs_simple_worst": max(ratios)}
    return found


def lost_seconds(trace: Trace, share: int) -> dict[str, float]:
    """Return what callers lose with the default, and with the two simple rules, in this order."""
    return {name: outcome.lost_seconds for name, outcome in _rows(trace, share).items()}


def _rows(trace: Trace, share: int) -> dict[str, Outcome]:
    say(f"seconds lost by callers at {share} % …")
    default = shipped(trace, share)
    rules = {
        f"the default ({default.policy.name})": default,
        f"lru-idle, {IDLE_SECONDS:.0f} s": replace(default, policy=find("lru-idle"), idle_seconds=IDLE_SECONDS),
        "cost-aware, 0 s": replace(default, policy=find("cost-aware"), idle_seconds=0),
    }
    return {name: simulate(trace, rule) for name, rule in rules.items()}


def _lost_ratio(rows: Mapping[str, Outcome], of: str, found: Figures) -> float:
    """Return what callers lose with the default, over what they lose with the better simple rule."""
    for name, outcome in rows.items():
        found.add(f"{of}: {name}", f"{outcome.lost_seconds:,.0f} s lost · {_words(outcome)}")
    ours, *simple = (outcome.lost_seconds for outcome in rows.values())
    return ours / min(simple) if min(simple) else 1.0


def _words(outcome: Outcome) -> str:
    return f"{outcome.load_seconds:,.0f} s in {len(outcome.loads):,} loads · {outcome.busy:,} busy"


SIZES = 1_000, 10_000
DECISIONS = 40
LONG = 1e6  # After so many seconds, every model may go.


def decisions() -> Figures:
    """Measure decisions of the policy cost-aware among many models."""
    found = Figures()
    few, many = SIZES
    times = {}
    for size in SIZES:
        say(f"decisions among {size:,} models …")
        times[size] = decision_microseconds("cost-aware", size)
        found.add(f"decision among {size:,} models", f"{times[size]:,.0f} µs")
    found.figures |= {"decide_us_10k": times[many], "decide_growth": times[many] / times[few]}
    return found


def decision_microseconds(policy: str, resident: int) -> float:
    """Return the median time from an acquire of a cold model to the unload of others, in µs."""
    names = [f"model-{number}" for number in range(resident + DECISIONS)]
    size = 1 << 20
    rules = PoolSettings(resident * size, find(policy), IDLE_SECONDS, 30.0, 60.0, measures=False)
    core = Residency(rules, "bench", 0.0)
    core.configure(rules, {name: ModelSpec(name, footprint_bytes=size) for name in names}, 0.0)
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
