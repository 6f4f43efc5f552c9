"""The data plane that the demo shows: an environment with two proxies, and the zoo in its repositories."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate_contracts import routing
from tidegate_contracts.eviction import Tuning

from lab.local_plane.environment import ON_DEMAND, POOL, PRELOAD, LocalEnvironment, Plan, local_environment

from . import zoo

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = "demo"
CALLER = "visitor"
PROXIES = 2
POLL_SECONDS = 1
IDLE_SECONDS, LEASE_SECONDS, WAIT_SECONDS = 1, 2, 8
"""Idle limits are minutes on a platform (300 s), leases 9 s; here it is seconds, so that nobody has to wait."""
TUNING = Tuning(
    # Models here are as small as the noise that other slices ignore; and nobody waits long for the second try.
    tolerance_bytes=16 * zoo.MIB,
    failures_most=2,
    retry_most_seconds=10,
    failure_backoff_seconds=0.2,
)


def plan() -> Plan:
    """Return what it has: every model is known, and the visitor may do all."""
    preloaded = [routing.Model(name=name, server=PRELOAD, pool=POOL) for name in zoo.PRELOADED]
    on_demand = [
        routing.Model(
            name=name,
            server=ON_DEMAND,
            pool=POOL,
            footprint_bytes=zoo.DECLARED.get(name),
            idle_seconds=zoo.IDLE_SECONDS.get(name),
        )
        for name in zoo.ON_DEMAND
    ]
    return Plan(
        name=ENVIRONMENT,
        models=(*preloaded, *on_demand),
        callers=(CALLER,),
        proxies=PROXIES,
        poll_seconds=POLL_SECONDS,
        capacity_bytes=zoo.CAPACITY_BYTES,
        idle_seconds=IDLE_SECONDS,
        lease_seconds=LEASE_SECONDS,
        wait_seconds=WAIT_SECONDS,
        tuning=TUNING,
    )


@contextmanager
def platform(root: Path) -> Iterator[LocalEnvironment]:
    """Run all of it below a folder; it ends with the block. Raises CannotBeHadError and ProcessError."""
    made = LocalEnvironment(root, plan())
    made.publish(PRELOAD, zoo.RESIDENT.model())
    for model in zoo.on_demand():
        made.publish(ON_DEMAND, model)
    with local_environment(made):
        yield made
