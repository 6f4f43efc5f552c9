"""The leases of this proxy on the models of one pool, and at which of its replicas it asks for them."""

import asyncio
import os
import re
import socket
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tidegate_contracts import lease as told

from ..problems import Kind, Problem
from ..upstream.pool import Pool, Replica
from .client import Client, PolicyError
from .copies import Copies, Upkeep
from .leases import Lease
from .placement import Place, order
from .policy import Policy
from .saying import AGAIN_SECONDS

if TYPE_CHECKING:
    from ..telemetry.meter import Meter

FIRST_SECONDS = 1.0
"""Seconds that a request waits at most until the policies have said what is resident, when the proxy has just begun."""
MOST_OF_A_MODEL = 0.5
"""Share of all who may wait that may wait for one model: others are to be had meanwhile."""
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._:-]+")
_NOT_READY = frozenset({"unknown", "quarantined"})


class _No(NamedTuple):
    """Why a lease cannot be had at a replica for now; of several the smallest counts."""

    silent: bool
    """Whether its policy gave no answer."""
    retry_after: float
    why: str


def new_holder_name() -> str:
    """Return a name that no other holder has, and that tells people whose it is."""
    return f"{_NOT_OF_A_NAME.sub('-', socket.gethostname())[:48] or 'proxy'}.{os.urandom(4).hex()}"


class Holder:
    """Of one pool. A request for a model that is leased costs one look-up in a dictionary."""

    def __init__(
        self, pool: Pool, port: int, name: str, meter: "Meter", connect_seconds: float, most_waiting: int
    ) -> None:
        self.pool = pool
        self.policies: dict[Replica, Policy] = {}
        self._port = port
        self._name = name
        self._meter = meter
        self._key = pool.server, pool.name
        self._connect_seconds = connect_seconds
        self.copies: dict[str, Copies] = {}
        """By model."""
        self.waiting = 0
        """Requests that wait for a lease."""
        self._most_waiting = most_waiting
        self._waiting_for: Counter[str] = Counter()
        self._upkeep = Upkeep(self)
        self._leaving: set[asyncio.Task[None]] = set()

    # --- life
    def start(self) -> None:
        """Begin to look after leases."""
        self._upkeep.start()

    def follow(self) -> None:
        """Learn which replicas the pool has now."""
        for replica in self.pool.replicas:
            if replica not in self.policies:
                host = self.pool.told.host
                client = Client(replica, self._port, host, self._connect_seconds)
                policy = self.policies[replica] = Policy(
                    self._name, replica, client, host, self._granted, self._dropped, self._count
                )
                policy.start()
        for replica in [replica for replica in self.policies if replica not in self.pool.replicas]:
            self._leave(self.policies.pop(replica))

    def _leave(self, policy: Policy) -> None:
        policy.end()  # at once: a grant that comes in this very turn is nobody's
        task = asyncio.get_running_loop().create_task(policy.leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def leave(self) -> None:
        """Ask for no more leases; keep those of requests under way until they end, and give all of them back."""
        self._upkeep.stop()
        for replica in list(self.policies):
            self._leave(self.policies.pop(replica))
        if self._leaving:
            await asyncio.wait(set(self._leaving))

    # --- what requests ask
    def find(self, model: str, now: float, tried: Sequence[Replica] = (), sequence: bool = False) -> Lease | None:
        """Return a lease under which a request can be begun now: of several, that of the less busy replica.

        All requests of a `sequence` get the same one, for as long as it lasts.
        """
        copies = self.copies.get(model)
        if copies is None:
            return None
        leases = copies.leases
        if sequence:
            copies.sequential = True
        if len(leases) == 1 and not tried:
            lease = leases[0]
            return lease if now < lease.until and lease.replica.breaker.allows(now) else None
        able = [
            each
            for each in leases
            if now < each.until and each.replica not in tried and each.replica.breaker.allows(now)
        ]
        if copies.sequential:
            return able[0] if able else None
        able = [each for each in able if self.stays(each.replica)] or able
        return min(able, key=lambda each: each.replica.in_flight, default=None)

    def at(self, model: str, replica: Replica, now: float) -> Lease | None:
        """Return the lease on a model at this very replica, if it is had."""
        policy = self.policies.get(replica)
        lease = None if policy is None else policy.leases.get(model)
        return lease if lease is not None and lease.held and now < lease.until else None

    def warm_at(self, model: str, now: float) -> Replica | None:
        """Return a replica at which a model is resident, as far as is known, to look at it there without a lease."""
        for policy in self.in_order(model, ()):
            if self.at(model, policy.replica, now) is not None or model in policy.resident:
                return policy.replica
        return None

    async def acquire(self, model: str, tried: Sequence[Replica] = ()) -> Lease:
        """Return a lease on a model, which is loaded for it if need be; raises Problem.

        Who wants the same at the same time waits together. It takes as long as the load: callers bound it.
        """
        started = monotonic()
        if (lease := self.find(model, started, tried)) is not None:  # since the caller looked
            return lease
        if self.waiting >= self._most_waiting or self._waiting_for[model] >= self._most_waiting * MOST_OF_A_MODEL:
            raise Problem(Kind.BUSY, "Too many requests wait already for models to be loaded.", 1.0)
        self.waiting += 1
        self._waiting_for[model] += 1
        try:
            await self._know()
            return await self._ask_around(model, tried)
        finally:
            self.waiting -= 1
            self._waiting_for[model] -= 1
            if not self._waiting_for[model]:
                del self._waiting_for[model]
            self._meter.lease_waits[self._key].add(monotonic() - started)

    async def acquire_at(self, model: str, replica: Replica) -> Lease:
        """Return a lease on a model at this very replica, for a stream that is there; raises Problem."""
        policy = self.policies.get(replica)
        if policy is None:
            raise Problem(Kind.BUSY, f"The stream's replica, {replica.name}, is leaving: open another stream.", 0.0)
        found = await self._ask(policy, model, None)
        if isinstance(found, Lease):
            return found
        raise Problem(Kind.BUSY, f"{model} cannot be had where the stream is: {found.why}", found.retry_after)

    async def is_ready(self, model: str) -> bool:
        """Tell whether a request for a model could be answered: it is resident, or nothing speaks against a load."""
        if self.find(model, monotonic()) is not None:
            return True
        for policy in self.in_order(model, ()):
            try:
                state = (await policy.states()).get(model, "unknown")
            except PolicyError:
                continue
            if state not in _NOT_READY:
                return True
        return False

    def doubt(self, replica: Replica) -> None:
        """Use no lease at a replica before its policy confirms it: its Triton fails."""
        if (policy := self.policies.get(replica)) is not None:
            policy.doubt()

    def doubt_one(self, lease: Lease) -> None:
        """Use one lease no more before its policy confirms it: Triton says that it does not know the model."""
        if (policy := self.policies.get(lease.replica)) is not None:
            policy.doubt_one(lease)

    # --- for metrics
    def held(self, now: float) -> dict[str, int]:
        """Return the number of leases at each replica."""
        counts = {}
        for replica, policy in list(self.policies.items()):
            counts[replica.name] = sum(lease.held and now < lease.until for lease in list(policy.leases.values()))
        return counts

    def silent(self) -> dict[str, bool]:
        """Return for each replica whether its policy gives no answer."""
        return {replica.name: policy.silent > 0 for replica, policy in list(self.policies.items())}

    # ---
    async def _ask_around(self, model: str, tried: Sequence[Replica]) -> Lease:
        """Ask one replica after the other; where none has room now, wait at the one that has it soonest."""
        policies = self.in_order(model, tried)
        several = len(policies) > 1
        refusals: list[_No] = []
        for number, policy in enumerate(policies):
            self._meter.lease_spills[self._key] += number > 0
            found = await self._ask(policy, model, 0.0 if several else None)
            if isinstance(found, Lease):
                return found
            refusals.append(found)
        if not policies:
            where = f"{self.pool.server}/{self.pool.name}"
            missing = f"No replica of {where} takes connections." if tried else f"No replica of {where} is there."
            raise Problem(Kind.BUSY, missing, max(0.1, self.pool.retry_in(monotonic())))
        soonest = min(refusals)
        if several and not soonest.silent:
            found = await self._ask(policies[refusals.index(soonest)], model, None)
            if isinstance(found, Lease):
                return found
            soonest = min([*refusals, found])
        raise Problem(Kind.BUSY, f"The model {model} cannot be had just now: {soonest.why}", soonest.retry_after)

    async def _ask(self, policy: Policy, model: str, room_seconds: float | None) -> "Lease | _No":
        """Return a lease, or why there is none for now; raises Problem where there will be none."""
        try:
            answer = await policy.acquire(model, room_seconds)
        except PolicyError as error:
            why = f"the eviction policy of {policy.replica.name} gives no answer: {error}."
            return _No(True, AGAIN_SECONDS, why)
        if isinstance(answer, told.Granted):
            lease = self.at(model, policy.replica, monotonic())
            return lease or _No(True, AGAIN_SECONDS, "the lease ended as soon as it was had.")
        if isinstance(answer, told.Busy):
            return _No(False, answer.retry_after, answer.why)
        kinds = {
            "unknown": Kind.UNKNOWN,
            "too-large": Kind.NEVER_FITS,
            "quarantined": Kind.LOAD_FAILED,
        }
        raise Problem(kinds[answer.outcome], answer.why)

    def _granted(self, lease: Lease) -> None:
        copies = self.copies.get(lease.model)
        if copies is None:
            copies = self.copies[lease.model] = Copies(monotonic())
        if lease not in copies.leases:
            copies.leases.append(lease)
            if copies.sequential:  # whoever came to be here could not use the one before: it is not gone back to
                for other in copies.leases[:-1]:
                    self.policies[other.replica].drop(other)

    def _dropped(self, lease: Lease) -> None:
        copies = self.copies.get(lease.model)
        if copies is not None and lease in copies.leases:
            copies.leases.remove(lease)

    def _count(self, outcome: str) -> None:
        self._meter.lease_acquires[*self._key, outcome] += 1

    async def _know(self) -> None:
        """Wait, at the proxy's start, until it is known what is resident where: better warm than first in rank."""
        unknown = [policy for policy in self.policies.values() if not policy.asked_once.is_set()]
        if unknown:
            waits = [asyncio.ensure_future(policy.asked_once.wait()) for policy in unknown]
            try:
                await asyncio.wait(waits, timeout=FIRST_SECONDS)
            finally:
                for wait in waits:
                    wait.cancel()

    def stays(self, replica: Replica) -> bool:
        """Tell whether a replica is there to stay: listed, with a policy that answers and gives leases."""
        policy = self.policies.get(replica)
        return policy is not None and replica.listed and policy.accepts and not policy.silent

    def in_order(self, model: str, tried: Sequence[Replica]) -> list[Policy]:
        """Return the policies to ask for a lease, the best first; those of replicas that can be used."""
        now = monotonic()
        by_name = {
            replica.name: policy
            for replica, policy in self.policies.items()
            if replica not in tried and replica.breaker.allows(now)
        }
        places = [
            Place(name, self.stays(each.replica), model in each.resident or self._is_held(model, each))
            for name, each in by_name.items()
        ]
        return [by_name[name] for name in order(model, places)]

    @staticmethod
    def _is_held(model: str, policy: Policy) -> bool:
        lease = policy.leases.get(model)
        return lease is not None and lease.held
