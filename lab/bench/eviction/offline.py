"""Simulations of the policies, without a Triton.

Every policy gets the same requests. `lost_vs_simple_*` is the loss of callers: the seconds of waits, and the longest
wait for each refused caller. It divides the loss with the definition's default by the loss with the better of two
simple policies. These have the same leases and waits: `lru-idle` with five minutes, and `cost-aware` without an idle
limit. `lost_vs_simple_days` is the geometric mean over generated days (`DAYS`), and `lost_vs_simple_worst` the worst of
their cells.
"""

import statistics
from collections.abc import Mapping
from dataclasses import replace

from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Outcome, Trace
from tidegate_eviction.simulate.zoo import Workload, generate

from lab.bench.report import Figures, progress
from stacks.definition.pools import OnDemand

LOST_SHARES = 25, 40, 60
IDLE_SECONDS = 300.0  # The five-minute rule.
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
"""Days that were not used to choose the default's factors."""


def simulated(trace: Trace) -> Figures:
    """Simulate the default and the simple policies on one trace."""
    found = Figures()
    for share in LOST_SHARES:
        found.figures[f"lost_vs_simple_{share}"] = _lost_ratio(outcomes(trace, share), f"{share} %", found)
    return found


def shipped(trace: Trace, share: int) -> SimulationSetting:
    """Return the settings of a definition without options, with memory for `share` per cent of all models."""
    default = OnDemand(mode="on-demand")
    return SimulationSetting(
        find(default.policy), round(share / 100 * trace.total_bytes), default.idle_seconds, default.wait_seconds,
        default.lease_seconds,
    )  # fmt: skip


def days() -> Figures:
    """Simulate the default and the simple policies on days of several kinds."""
    found = Figures()
    ratios = []
    for name, zoo in DAYS.items():
        trace = generate(zoo)
        ratios += [_lost_ratio(outcomes(trace, share), f"{name}, {share} %", found) for share in LOST_SHARES]
    found.figures |= {"lost_vs_simple_days": statistics.geometric_mean(ratios), "lost_vs_simple_worst": max(ratios)}
    return found


def outcomes(trace: Trace, share: int) -> dict[str, Outcome]:
    """Simulate a trace with the default and with the two simple policies, in this order."""
    progress(f"seconds lost by callers at {share} % …")
    default = shipped(trace, share)
    rules = {
        f"the default ({default.policy.name})": default,
        f"lru-idle, {IDLE_SECONDS:.0f} s": replace(default, policy=find("lru-idle"), idle_seconds=IDLE_SECONDS),
        "cost-aware, 0 s": replace(default, policy=find("cost-aware"), idle_seconds=0),
    }
    return {name: simulate(trace, rule) for name, rule in rules.items()}


def _lost_ratio(rows: Mapping[str, Outcome], of: str, found: Figures) -> float:
    """Return the default's loss over that of the better simple policy."""
    for name, outcome in rows.items():
        loading = f"{outcome.load_seconds:,.0f} s in {len(outcome.loads):,} loads"
        found.add(f"{of}: {name}", f"{outcome.lost_seconds:,.0f} s lost · {loading} · {outcome.busy:,} busy")
    ours, *simple = (outcome.lost_seconds for outcome in rows.values())
    return ours / min(simple) if min(simple) else 1.0
