"""This proxy's leases in one pool, by replica and by model, and the task that rebalances them.

It gives up unused leases, gives hot models a second replica, and makes proxies that differ converge.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic

from tidegate_contracts import lease as api
from tidegate_contracts.placement import ranked

from ..settings import Tunables
from ..upstream.replica import Replica
from .client import PolicyError
from .leases import Heat, Lease, ModelLeases
from .replica_leases import ReplicaLeases

AT_ONCE = 50  # Models per step: requests run between two steps.
log = logging.getLogger(__name__)


class LeaseTable:
    """The leases that this proxy holds in one pool, by model and by replica."""

    def __init__(self, tunables: Tunables) -> None:
        self.tunables = tunables
        self.replicas: dict[Replica, ReplicaLeases] = {}
        self.models: dict[str, ModelLeases] = {}

    def find(self, model: str, now: float, tried: Sequence[Replica] = (), sequence: bool = False) -> Lease | None:
        """Return a lease under which a request can begin now. Of several, return that of the least busy replica. All
        requests of a `sequence` get the same lease while it lasts."""
        found = self.models.get(model)
        if found is None:
            return None
        leases = found.leases
        if sequence:
            found.sequential = True
        if len(leases) == 1 and not tried:
            return leases[0] if leases[0].usable(now) else None
        able = [each for each in leases if each.replica not in tried and each.usable(now)]
        if found.sequential:
            return able[0] if able else None
        able = [each for each in able if self.stays(each.replica)] or able
        return min(able, key=lambda each: each.replica.in_flight, default=None)

    def at(self, model: str, replica: Replica, now: float) -> Lease | None:
        here = self.replicas.get(replica)
        lease = None if here is None else here.leases.get(model)
        return lease if lease is not None and lease.held and now < lease.until else None

    def granted(self, lease: Lease) -> None:
        found = self.models.get(lease.model)
        if found is None:
            found = self.models[lease.model] = ModelLeases(monotonic(), Heat(self.tunables))
        if lease not in found.leases:
            found.leases.append(lease)
            if found.sequential:  # the earlier lease was unusable: sequences do not go back to it
                for other in found.leases[:-1]:
                    self.replicas[other.replica].drop(other)

    def dropped(self, lease: Lease) -> None:
        found = self.models.get(lease.model)
        if found is not None and lease in found.leases:
            found.leases.remove(lease)

    def stays(self, replica: Replica) -> bool:
        """Return whether a replica stays: it is listed, and its policy responds and grants leases."""
        here = self.replicas.get(replica)
        return here is not None and replica.listed and here.accepts and not here.silent

    def leaves(self, replica: Replica) -> bool:
        """Return whether a replica leaves: its policy reports so, or it is unlisted although its policy responds. A
        silent policy makes its pod unready, so its replica is unlisted too, although the server goes on."""
        here = self.replicas.get(replica)
        return here is not None and (not here.accepts or (not replica.listed and not here.silent))

    def in_order(self, model: str, tried: Sequence[Replica] = ()) -> list[ReplicaLeases]:
        """Return the replicas at which to request a lease: those that take requests and were not tried. Replicas that
        stay come first, then those at which the model is warm, then by rank."""
        now = monotonic()
        by_name = {
            replica.name: here
            for replica, here in self.replicas.items()
            if replica not in tried and replica.breaker.allows(now)
        }
        by_rank = [by_name[name] for name in ranked(model, by_name)]
        return sorted(by_rank, key=lambda here: (not self.stays(here.replica), not here.is_warm(model)))


class Rebalancer:
    """Once a second, gives up unused leases and gives hot models a second replica. Moves models away from one that
    leaves, and to the one that ranks highest if it has spare memory, so that proxies converge."""

    def __init__(self, table: LeaseTable) -> None:
        self._table, self._tunables = table, table.tunables
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop, and give up leases that are being acquired."""
        if self._task is not None:
            self._task.cancel()
        for model in self._table.models.values():
            if model.moving is not None:
                model.moving.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._tunables.rebalance_seconds)
            try:
                await self.look()
            except Exception:
                log.exception("looking after leases failed unexpectedly")

    async def look(self) -> None:
        """Look at every model once. Requests run in between."""
        for number, name in enumerate(list(self._table.models)):
            if (model := self._table.models.get(name)) is not None:
                self._look_at(name, model, monotonic())
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        for here in self._table.replicas.values():
            here.give_back()

    def _look_at(self, name: str, model: ModelLeases, now: float) -> None:
        for lease in list(model.leases):
            here = self._table.replicas.get(lease.replica)
            if here is None:
                model.leases.remove(lease)
            elif lease.idle_seconds(now) >= here.lease_seconds:
                here.drop(lease)
        if model.leases:
            self._place(name, model, now)
        elif model.moving is None:
            del self._table.models[name]

    def _place(self, name: str, model: ModelLeases, now: float) -> None:
        in_flight = sum(lease.in_flight for lease in model.leases)
        requests = sum(lease.requests - lease.seen for lease in model.leases)
        for lease in model.leases:
            lease.seen = lease.requests
        hot = model.heat.look(in_flight, requests, now - model.checked)
        model.checked = now
        if model.sequential or model.moving is not None:
            return
        wanted = 2 if hot else 1
        staying = [lease for lease in model.leases if not self._table.leaves(lease.replica)]
        usable = [lease for lease in staying if lease.usable(now)]
        if len(usable) >= wanted and len(model.leases) > wanted:
            if now >= max(lease.since for lease in model.leases) + self._tunables.lease_again_seconds:
                self._narrow(name, model, usable, wanted)
        elif now >= model.again:
            others = [
                here
                for here in self._table.in_order(name, [lease.replica for lease in model.leases])
                if self._table.stays(here.replica)
            ]
            enough = len(staying) >= wanted
            if enough:
                since = max(lease.since for lease in staying)
                is_called = bool(in_flight or requests) and now >= since + self._tunables.lease_again_seconds
                better = self._better(name, staying, others)
                others = [each for each in better if name in each.resident or (is_called and each.came > since)]
            if others:
                model.moving = asyncio.get_running_loop().create_task(self._acquire_one(name, model, others, enough))

    def _narrow(self, name: str, model: ModelLeases, usable: list[Lease], wanted: int) -> None:
        """Keep the leases that every proxy would keep."""
        kept = ranked(name, [lease.replica.name for lease in usable])[:wanted]
        for lease in list(model.leases):
            if lease.replica.name not in kept:
                self._table.replicas[lease.replica].drop(lease)

    def _better(self, name: str, staying: list[Lease], others: list[ReplicaLeases]) -> list[ReplicaLeases]:
        """Return those of the replicas at which the model ranks higher."""
        rank = ranked(name, [replica.name for replica in self._table.replicas])
        worst = max(rank.index(lease.replica.name) for lease in staying)
        return [each for each in others if rank.index(each.replica.name) < worst]

    async def _acquire_one(self, name: str, model: ModelLeases, others: list[ReplicaLeases], spare: bool) -> None:
        """Get a lease at the first of these replicas that grants one."""
        try:
            for here in others:
                try:
                    answer = await here.acquire(name, spare=spare)
                except PolicyError:
                    continue
                if isinstance(answer, api.Granted):
                    return
            tunables = self._tunables
            model.again = monotonic() + (tunables.spare_seconds if spare else tunables.lease_again_seconds)
        finally:
            model.moving = None
