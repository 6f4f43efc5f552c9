"""This proxy's leases on the models of one pool: requests acquire them, and replicas come and go."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from tidegate_contracts import lease as api
from tidegate_contracts import routing
from tidegate_contracts.placement import NotNow, next_ask
from tidegate_service.reasons import plain

from ..problems import AGAIN_SECONDS, Problem, ProblemType
from ..settings import Tunables
from ..telemetry.meter import Histogram, Meter
from ..upstream.breaker import FAILURES
from ..upstream.replica import Replica
from .client import LeaseClient, Listing, PolicyError
from .leases import Lease
from .replica_leases import ReplicaLeases
from .table import LeaseTable, Rebalancer

FIRST_SECONDS = 1.0
"""Longest wait of a request, in seconds, for the policies' first responses after the proxy has started."""
MOST_OF_A_MODEL = 0.5
"""Share of the waiting requests that one model can have. The rest stays free for other models."""
_NOT_READY = frozenset({"unknown", "quarantined"})
_REFUSED = {"too-large": ProblemType.NEVER_FITS, "quarantined": ProblemType.LOAD_FAILED, "unknown": ProblemType.UNKNOWN}


def _busy(what: str, found: NotNow) -> Problem:
    retry_after, why, reason, replica = found[1:]
    return Problem(ProblemType.BUSY, f"{what}: {why}", retry_after, reason=reason, replica=replica)


def new_holder_name() -> str:
    """Return a unique name for a holder of leases, which shows people its pod."""
    return api.holder_name(socket.gethostname(), os.urandom(4).hex())


@dataclass(eq=False)
class LeaseManager:
    """Acquires and keeps this proxy's leases on the models of one on-demand pool."""

    _server: str
    _config: routing.Pool
    _holder: str  # The manager's name in the lease API.
    _meter: Meter
    _connect_seconds: float
    _most_waiting: int  # Requests that can wait for leases at once. More are refused.
    _tunables: Tunables
    _authorization: Callable[[], bytes] = bytes  # The header line that proves to policies that this is a proxy.
    waiting: int = 0  # Requests that wait for a lease.
    nowhere: Callable[[], Problem] = lambda: Problem(
        ProblemType.BUSY, "No replica is available.", AGAIN_SECONDS, reason="no-replica"
    )
    """Returns the problem of a request that no replica can take. The pool replaces it."""

    def __post_init__(self) -> None:
        self.table = LeaseTable(self._tunables)
        self.find, self.at = self.table.find, self.table.at
        self._key = self._server, self._config.name
        self._waiting_for: Counter[str] = Counter()
        self._rebalancer = Rebalancer(self.table)
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_there = asyncio.Event()  # Set while the pool has a replica.
        # A scaler that wakes pools by this count sees the first call only if it was 0 before.
        self._meter.lease_waits.setdefault(self._key, Histogram())

    def start(self) -> None:
        self._rebalancer.start()

    def follow(self, replicas: Sequence[Replica]) -> None:
        table, known, host, port = self.table, self.table.replicas, self._config.host, self._config.lease_port
        assert port is not None
        for replica in [replica for replica in replicas if replica not in known]:
            client = LeaseClient(replica, port, host, self._connect_seconds, self._authorization)
            hooks = table.granted, table.dropped, self._count
            known[replica] = ReplicaLeases(self._holder, replica, client, host, *hooks)
        for replica in [replica for replica in known if replica not in replicas]:
            task = known.pop(replica).leave()  # at once: a grant in this very turn of the loop is not taken
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        if known:
            self._is_there.set()
        else:
            self._is_there.clear()

    async def leave(self) -> None:
        """Request no more leases, keep those of requests in flight until they end, and give all of them back."""
        self._rebalancer.stop()
        self.follow(())
        if self._leaving:
            await asyncio.wait(set(self._leaving))

    def warm_at(self, model: str, now: float) -> Replica | None:
        """Return a replica where a model seems resident, to look without a lease. Raises Problem (busy) without any."""
        for here in self._candidates(model):
            if model in here.resident or self.at(model, here.replica, now) is not None:
                return here.replica
        return None

    async def acquire(self, model: str, tried: Sequence[Replica] = ()) -> Lease:
        """Return a lease on a model, which is loaded if necessary. Raises Problem. Callers of the same model share one
        request. It takes as long as the load, so callers must limit the time."""
        started = monotonic()
        if (lease := self.find(model, started, tried)) is not None:  # since the caller looked
            return lease
        if self.waiting >= self._most_waiting or self._waiting_for[model] >= self._most_waiting * MOST_OF_A_MODEL:
            why = "Too many requests already wait for models to be loaded."
            raise Problem(ProblemType.BUSY, why, 1.0, reason="queue-full")
        self.waiting += 1
        self._waiting_for[model] += 1
        try:
            await self._first_replica()
            await self._first_answers()
            return await self._ask_around(model, tried)
        finally:
            self.waiting -= 1
            self._waiting_for[model] -= 1
            if not self._waiting_for[model]:
                del self._waiting_for[model]
            self._meter.lease_waits[self._key].add(monotonic() - started)

    async def acquire_at(self, model: str, replica: Replica) -> Lease:
        """Return a lease on a model at this replica, for a stream that is there. Raises Problem."""
        here = self.table.replicas.get(replica)
        if here is None:
            why = f"The stream's replica, {replica.name}, is leaving: open another stream."
            raise Problem(ProblemType.BUSY, why, 0.0, reason="leaving", replica=replica.name)
        found = await self._ask(here, model, None)
        if isinstance(found, Lease):
            return found
        raise _busy(f"The model {model} is not available on the stream's replica", found)

    async def is_ready(self, model: str) -> bool:
        """Return whether a request for a model could succeed: it is resident, or nothing prevents a load. Raises
        Problem (busy), as the request would, if no replica can be used."""
        tried = [each for each in self.table.replicas if each.breaker.failures >= FAILURES]  # these are not ready
        if self.find(model, monotonic(), tried) is not None or self.sleeps:
            return True
        for here in self._candidates(model, tried):
            try:
                found = (await here.listing()).models.get(model)
            except PolicyError:
                continue
            if found is not None and found.state not in _NOT_READY:
                return True
        return False

    def doubt(self, replica: Replica) -> None:
        """Use no lease at a replica before its policy confirms it, because its server fails."""
        if (here := self.table.replicas.get(replica)) is not None:
            here.doubt()

    def mark_unresponsive(self, replica: Replica) -> None:
        """Stop waiting for leases at a replica, and doubt the held ones, because its server does not respond."""
        if (here := self.table.replicas.get(replica)) is not None:
            here.mark_unresponsive()

    def doubt_one(self, lease: Lease) -> None:
        """Stop using one lease before its policy confirms it, because the server does not know the model."""
        if (here := self.table.replicas.get(lease.replica)) is not None:
            here.doubt_one(lease)

    async def listing(self, replica: Replica) -> Listing:
        """Return every model as the policy of a replica sees it. Raises PolicyError."""
        if (here := self.table.replicas.get(replica)) is None:
            raise PolicyError("its replica is leaving")
        return await here.listing()

    def held(self, now: float) -> dict[str, int]:
        """Return the number of leases at each replica."""
        return {
            replica.name: sum(lease.held and now < lease.until for lease in list(here.leases.values()))
            for replica, here in list(self.table.replicas.items())
        }

    def silent(self) -> dict[str, bool]:
        """Return for each replica whether its policy is silent."""
        return {replica.name: here.silent > 0 for replica, here in list(self.table.replicas.items())}

    def silent_seconds(self, replica: Replica) -> float | None:
        """Return for how many seconds the policy of a replica has been silent. None if it responds."""
        here = self.table.replicas.get(replica)
        return monotonic() - here.silent_since if here is not None and here.silent else None

    @property
    def sleeps(self) -> bool:
        return self._config.wake_seconds is not None and not self.table.replicas

    async def _first_replica(self) -> None:
        """Wait for the first replica of a pool that sleeps, at most `wake_seconds`."""
        if self.sleeps:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.wake_seconds):
                    await self._is_there.wait()

    async def _first_answers(self) -> None:
        """After a start of the proxy, wait until the policies report resident models, to find warm replicas first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                for here in list(self.table.replicas.values()):
                    await here.tried_once.wait()

    def _candidates(self, model: str, tried: Sequence[Replica] = ()) -> list[ReplicaLeases]:
        """Return the replicas at which to request a lease, the best first. Raises Problem (busy) if there is none."""
        if candidates := self.table.in_order(model, tried):
            return candidates
        raise self.nowhere()

    async def _ask_around(self, model: str, tried: Sequence[Replica]) -> Lease:
        """Request a lease at one replica after the other. If none has memory now, wait at the one that will first."""
        candidates = self._candidates(model, tried)
        refusals: list[NotNow] = []
        while (ask := next_ask(len(candidates), refusals)) is not None:
            number, room_seconds = ask
            self._meter.lease_spills[self._key] += 0 < len(refusals) < len(candidates)
            found = await self._ask(candidates[number], model, room_seconds)
            if isinstance(found, Lease):
                return found
            refusals.append(found)
        soonest = min(refusals[len(candidates) :] or refusals)  # refusals before a wait are as old as the wait
        raise _busy(f"The model {model} is not available now", soonest)

    async def _ask(self, here: ReplicaLeases, model: str, room_seconds: float | None) -> Lease | NotNow:
        """Return a lease, or the reason why there is none for now. Raises Problem if there will be none."""
        name = here.replica.name
        try:
            answer = await here.acquire(model, room_seconds)
        except PolicyError as error:
            breaker, now = here.replica.breaker, monotonic()
            if not breaker.allows(now):
                why = f"{name} cannot be used: {breaker.why}."
                return NotNow(True, breaker.opens_in(now), why, reason="no-replica", replica=name)
            why = f"the eviction policy of {name} does not respond: {error}."
            return NotNow(True, AGAIN_SECONDS, why, reason="policy-silent", replica=name)
        if isinstance(answer, api.Granted):
            lease = self.at(model, here.replica, monotonic())
            why = "the lease ended before it could be used."
            return lease or NotNow(True, AGAIN_SECONDS, why, reason="lost", replica=name)
        if isinstance(answer, api.Busy):
            return NotNow(False, answer.retry_after, plain(answer.why), answer.reason or "", name)
        raise Problem(_REFUSED[answer.outcome], plain(answer.why), replica=name)

    def _count(self, outcome: str) -> None:
        self._meter.lease_acquires[*self._key, outcome] += 1
