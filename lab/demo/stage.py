"""Where the scenes play: an environment with two proxies and the zoo, a visitor, and what can be seen from outside."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tidegate_contracts import routing
from tidegate_contracts.eviction import Tuning
from tidegate_contracts.lease import Listing

from lab.local_plane.environment import ON_DEMAND, POOL, PRELOAD, LocalEnvironment, Plan, local_environment
from lab.local_plane.prometheus import counted
from rollout.tools.running import repeating

from . import zoo
from .playing import claim, until
from .show import Show
from .visitor import Visitor

ROOT = Path(__file__).resolve().parents[2]
OWN_POLICY = Path(__file__).with_name("largest_first")
ENVIRONMENT = "demo"
CALLER = "visitor"
SAMPLE_SECONDS = 0.2
PROXIES = 2
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
        capacity_bytes=zoo.CAPACITY_BYTES,
        idle_seconds=IDLE_SECONDS,
        lease_seconds=LEASE_SECONDS,
        wait_seconds=WAIT_SECONDS,
        policy_packages=(str(OWN_POLICY),),
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


@dataclass
class Stage:
    """What every scene has at hand."""

    platform: LocalEnvironment
    visitor: Visitor
    show: Show
    looks: int = 0  # How often the policy was asked what sits in its slice.
    most_bytes: int = 0  # The most that was resident, loading, freeing and leaked there at one time.

    def listing(self) -> Listing:
        """Return what sits in the on-demand Triton's slice."""
        return self.platform.policy.listing()

    def state(self, model: str) -> str:
        """Return the state of a model there."""
        return next(each.state for each in self.listing().models if each.model == model)

    @contextmanager
    def policy(self, name: str) -> Iterator[None]:
        """Have the policy choose by another rule as long as the block lasts."""
        before = self.platform.plan
        self._choose_by(replace(before, policy=name))
        try:
            yield
        finally:
            self._choose_by(before)

    def _choose_by(self, plan: Plan) -> None:
        self.platform.serve(plan)
        until(f"the policy is {plan.policy}", lambda: self.listing().policy == plan.policy)

    def wanted(self, *models: str) -> None:
        """Have models called one after the other, and obey `busy`."""
        for model in models:
            self._call(model)

    def leased(self, model: str) -> None:
        """Have every proxy get a lease on a model."""
        for proxy in range(len(self.visitor.proxies)):
            self._call(model, proxy)

    def _call(self, model: str, proxy: int = 0) -> None:
        reply = self.visitor.want(model, proxy)
        claim(reply.is_right(model), f"a call of {model} was answered {reply.status}: {reply.why}")

    def idle(self, model: str) -> None:
        """Wait until a model may be evicted."""
        until(
            f"{model} may be evicted",
            lambda: any(
                each.model == model and not each.leases and each.evictable_in == 0 for each in self.listing().models
            ),
        )

    @property
    def _log(self) -> Path:
        return self.platform.policy.process.log

    def mark(self) -> int:
        """Return where the policy's log ends now."""
        return self._log.stat().st_size

    def events(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        """Return the policy's events of a kind, from a mark on."""
        with self._log.open("rb") as log:
            log.seek(since)
            lines = log.read().splitlines()
        found = []
        for line in lines:
            with suppress(ValueError):  # what is no JSON is no event; the last one may be half written
                found.append(json.loads(line))
        return [event for event in found if event.get("event") == kind]

    def acquires(self) -> float:
        """Return how often the proxies have asked for a lease."""
        return sum(counted(proxy.admin, "tidegate_proxy_lease_acquires_total") for proxy in self.platform.proxies)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Look at the slice again and again, as long as the block lasts."""

        def look() -> None:
            try:
                found = self.listing()
            except (OSError, HTTPException):
                return  # the policy was just killed
            used = found.resident_bytes + found.loading_bytes + found.freeing_bytes + found.leaked_bytes
            self.looks += 1
            self.most_bytes = max(self.most_bytes, used)

        with repeating(look, pause=SAMPLE_SECONDS):
            yield
