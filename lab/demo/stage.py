"""The objects of the scenes: an environment with two proxies and the zoo, a visitor, and access to the policy's log."""

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
"""Short, so that the demo does not take long. The defaults are 300, 15 and 20 s."""
TUNING = Tuning(
    # The models are as small as the default tolerance. Retries follow quickly.
    tolerance_bytes=16 * zoo.MIB,
    failures_most=2,
    retry_most_seconds=10,
    failure_backoff_seconds=0.2,
)


def plan() -> Plan:
    """Return the demo's environment: it lists every model, and the visitor may call all of them."""
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
    """Run the environment in a directory until the block ends. Raises CannotBeHadError and ProcessError."""
    made = LocalEnvironment(root, plan())
    made.publish(PRELOAD, zoo.RESIDENT.model())
    for model in zoo.on_demand():
        made.publish(ON_DEMAND, model)
    with local_environment(made):
        yield made


@dataclass
class Stage:
    """The objects that every scene uses."""

    platform: LocalEnvironment
    visitor: Visitor
    show: Show
    samples: int = 0
    most_bytes: int = 0  # The largest sum of resident, loading, freeing and leaked bytes.

    def listing(self) -> Listing:
        return self.platform.policy.listing()

    def state(self, model: str) -> str:
        return next(each.state for each in self.listing().models if each.model == model)

    @contextmanager
    def policy(self, name: str) -> Iterator[None]:
        """Use another policy until the block ends."""
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
        """Call models one after the other, and retry as `busy` responses specify."""
        for model in models:
            self._call(model)

    def leased(self, model: str) -> None:
        """Call a model through every proxy, so that each gets a lease."""
        for proxy in range(len(self.visitor.proxies)):
            self._call(model, proxy)

    def _call(self, model: str, proxy: int = 0) -> None:
        reply = self.visitor.want(model, proxy)
        claim(reply.is_right(model), f"a call of {model} got {reply.status}: {reply.why}")

    def idle(self, model: str) -> None:
        until(
            f"{model} can be evicted",
            lambda: any(
                each.model == model and not each.leases and each.evictable_in == 0 for each in self.listing().models
            ),
        )

    @property
    def _log(self) -> Path:
        return self.platform.policy.process.log

    def mark(self) -> int:
        """Return the size of the policy's log now."""
        return self._log.stat().st_size

    def events(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        with self._log.open("rb") as log:
            log.seek(since)
            lines = log.read().splitlines()
        found = []
        for line in lines:
            with suppress(ValueError):  # Other lines are not JSON, and the last one can be incomplete.
                found.append(json.loads(line))
        return [event for event in found if event.get("event") == kind]

    def acquires(self) -> float:
        return sum(counted(proxy.admin, "tidegate_proxy_lease_acquires_total") for proxy in self.platform.proxies)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        def look() -> None:
            try:
                found = self.listing()
            except (OSError, HTTPException):
                return  # A scene has killed the policy.
            used = found.resident_bytes + found.loading_bytes + found.freeing_bytes + found.leaked_bytes
            self.samples += 1
            self.most_bytes = max(self.most_bytes, used)

        with repeating(look, pause=SAMPLE_SECONDS):
            yield
