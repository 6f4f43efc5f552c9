"""What needs no Triton: what the simulator says of the policies.

The simulator plays one trace, the same requests for every policy. `lost_vs_simple_*` is what callers lose: seconds
waited, and the whole bound on waits for each who is refused. It is of the default, as the definition has it, against
the better one of two simple rules with the same leases and waits: `lru-idle` with five minutes, and `cost-aware` with
no idle limit. `lost_vs_simple_days` is the geometric mean of the same over made-up days of other kinds (`DAYS`), and
`lost_vs_simple_worst` the worst of their cells.
"""

import statistics
from collections.abc import Mapping
from dataclasses import replace

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
    "expensive loads": Workload(
        models=20, zipf=1.6, bursty=0.2, periodic=0.3, footprint_mb=200, load_mb_per_second=20, seed=1
    ),
    "expensive loads, in bursts": Workload(models=20, bursty=0.8, footprint_mb=200, load_mb_per_second=20, seed=1),
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
