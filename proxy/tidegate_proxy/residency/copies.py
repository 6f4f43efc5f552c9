"""Looks after leases: those that are not used are given up, hot models get a second copy, and proxies come together."""

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from tidegate_contracts import lease as told

from .client import PolicyError
from .leases import Lease
from .placement import Heat, ranked
from .policy import Policy

if TYPE_CHECKING:
    from .holder import Holder

LOOK_SECONDS = 1.0
"""Seconds between two looks."""
AT_ONCE = 50
"""Models that are looked at before requests have their turn again."""
AGAIN_SECONDS = 10.0
"""Seconds until a copy that could not be had is asked for again, and for which one that was had is kept: it was wanted
for a reason, such as a replica that fails."""
log = logging.getLogger(__name__)


class Copies:
    """Where one model can be called."""

    __slots__ = ("again", "heat", "leases", "looked", "moving", "sequential")

    def __init__(self, now: float) -> None:
        self.leases: list[Lease] = []
        """Those that are held, the oldest first."""
        self.heat = Heat()
        self.looked = now
        self.sequential = False
        """Whether requests of sequences came, which must all reach the same replica: such a model has one copy."""
        self.moving: asyncio.Task[None] | None = None
        """Gets another copy."""
        self.again = 0.0
        """Not before then."""


class Upkeep:
    """Of one holder's leases."""

    def __init__(self, holder: "Holder") -> None:
        self._holder = holder
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """End; copies that are being got are left."""
        if self._task is not None:
            self._task.cancel()
        for copies in self._holder.copies.values():
            if copies.moving is not None:
                copies.moving.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                pool = self._holder.pool
                log.exception("the upkeep of the leases of %s/%s met a defect", pool.server, pool.name)

    async def look(self) -> None:
        """Look at every model once; requests have their turn in between."""
        for number, model in enumerate(list(self._holder.copies)):
            if (copies := self._holder.copies.get(model)) is not None:
                self._look_at(model, copies, monotonic())
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        for policy in self._holder.policies.values():
            policy.give_back()

    def _look_at(self, model: str, copies: Copies, now: float) -> None:
        holder = self._holder
        for lease in list(copies.leases):
            policy = holder.policies.get(lease.replica)
            if policy is None:
                copies.leases.remove(lease)
            elif lease.idle_seconds(now) >= policy.lease_seconds:
                policy.drop(lease)
        if copies.leases:
            self._place(model, copies, now)
        elif copies.moving is None:
            del holder.copies[model]

    def _place(self, model: str, copies: Copies, now: float) -> None:
        in_flight = sum(lease.in_flight for lease in copies.leases)
        requests = sum(lease.requests - lease.seen for lease in copies.leases)
        for lease in copies.leases:
            lease.seen = lease.requests
        hot = copies.heat.look(in_flight, requests, now - copies.looked)
        copies.looked = now
        if copies.sequential or copies.moving is not None:
            return
        wanted = 2 if hot else 1
        # A policy that is silent for a while is no reason to load its models elsewhere: its Triton goes on.
        staying = [lease for lease in copies.leases if self._holder.policies[lease.replica].accepts]
        usable = [lease for lease in staying if now < lease.until and lease.replica.breaker.allows(now)]
        if len(usable) >= wanted and len(copies.leases) > wanted:
            if now >= max(lease.since for lease in copies.leases) + AGAIN_SECONDS:
                self._narrow(model, copies, usable, wanted)
        elif now >= copies.again:
            others = self._others(model, copies)
            if len(staying) >= wanted:
                others = self._better(model, staying, others)
            if others:
                copies.moving = asyncio.get_running_loop().create_task(self._move(model, copies, others))

    def _narrow(self, model: str, copies: Copies, usable: list[Lease], wanted: int) -> None:
        """Keep the copies that every proxy would keep."""
        kept = ranked(model, [lease.replica.name for lease in usable])[:wanted]
        for lease in list(copies.leases):
            if lease.replica.name not in kept:
                self._holder.policies[lease.replica].drop(lease)

    def _others(self, model: str, copies: Copies) -> list[Policy]:
        """Return where another copy may be had."""
        have = [lease.replica for lease in copies.leases]
        return [each for each in self._holder.in_order(model, have) if self._holder.stays(each.replica)]

    def _better(self, model: str, staying: list[Lease], others: list[Policy]) -> list[Policy]:
        """Return where the model is resident as well, and better placed: so proxies that differ come together."""
        warm = [policy for policy in others if model in policy.resident]
        if not warm:
            return []
        rank = ranked(model, [replica.name for replica in self._holder.policies])
        worst = max(rank.index(lease.replica.name) for lease in staying)
        return [policy for policy in warm if rank.index(policy.replica.name) < worst]

    async def _move(self, model: str, copies: Copies, policies: list[Policy]) -> None:
        try:
            for policy in policies:
                try:
                    answer = await policy.acquire(model)
                except PolicyError:
                    continue
                if isinstance(answer, told.Granted):
                    return
            copies.again = monotonic() + AGAIN_SECONDS
        finally:
            copies.moving = None
