"""The leases of this proxy on the models of one pool: what requests ask for, and how replicas come and go."""

import asyncio
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from tidegate_contracts import lease as api
from tidegate_contracts import routing

from ..problems import AGAIN_SECONDS, Problem, ProblemType
from ..telemetry.meter import Meter
from ..upstream.replica import Replica, retry_in
from .client import LeaseClient, PolicyError
from .leases import Lease
from .replica_leases import ReplicaLeases
from .table import LeaseTable, Rebalancer

FIRST_SECONDS = 1.0
"""Seconds that a request waits at most for the policies to say what is resident, when the proxy has just started."""
MOST_OF_A_MODEL = 0.5
"""Share of the requests that may wait for leases which may wait for one model: others are to be had meanwhile."""
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._:-]+")
_NOT_READY = frozenset({"unknown", "quarantined"})
_REFUSED = {"too-large": ProblemType.NEVER_FITS, "quarantined": ProblemType.LOAD_FAILED, "unknown": ProblemType.UNKNOWN}


class _NotNow(NamedTuple):
    """Why a lease cannot be had at a replica for now; of several the smallest counts."""

    silent: bool  # Whether its policy gave no answer.
    retry_after: float
    why: str


def new_holder_name() -> str:
    """Return a unique name for a holder of leases, which tells people whose it is."""
    return f"{_NOT_OF_A_NAME.sub('-', socket.gethostname())[:48] or 'proxy'}.{os.urandom(4).hex()}"


@dataclass(eq=False)
class LeaseManager:
    """Acquires and keeps this proxy's leases on the models of one on-demand pool."""

    _server: str
    _config: routing.Pool
    _ready_path: Callable[[str], bytes]  # Of a model: where a replica answers 200 while it has it.
    _holder: str  # The manager's name in the lease API.
    _meter: Meter
    _connect_seconds: float
    _most_waiting: int  # Requests that may wait for leases at once; others are refused.
    waiting: int = 0  # Requests that wait for a lease.

    def __post_init__(self) -> None:
        self.table = LeaseTable()
        self.find, self.at = self.table.find, self.table.at
        self._key = self._server, self._config.name
        self._waiting_for: Counter[str] = Counter()
        self._rebalancer = Rebalancer(self.table)
        self._leaving: set[asyncio.Task[None]] = set()

    # --- life
    def start(self) -> None:
        """Begin to look after leases."""
        self._rebalancer.start()

    def follow(self, replicas: Sequence[Replica]) -> None:
        """Take over the replicas that the pool has now."""
        table, known, host, port = self.table, self.table.replicas, self._config.host, self._config.lease_port
        assert port is not None
        for replica in [replica for replica in replicas if replica not in known]:
            client = LeaseClient(replica, port, host, self._connect_seconds)
            known[replica] = ReplicaLeases(
                self._holder, replica, client, host, self._ready_path, table.granted, table.dropped, self._count
            )
        for replica in [replica for replica in known if replica not in replicas]:
            task = known.pop(replica).leave()  # at once: a grant that comes in this very turn of the loop is not taken
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def leave(self) -> None:
        """Ask for no more leases; keep those of requests in flight until they end, and give all of them back."""
        self._rebalancer.stop()
        self.follow(())
        if self._leaving:
            await asyncio.wait(set(self._leaving))

    # --- what requests ask
    def warm_at(self, model: str, now: float) -> Replica | None:
        """Return a replica at which a model is resident, as far as is known, to look at it there without a lease."""
        for here in self.table.in_order(model):
            if model in here.resident or self.at(model, here.replica, now) is not None:
                return here.replica
        return None

    async def acquire(self, model: str, tried: Sequence[Replica] = ()) -> Lease:
        """Return a lease on a model, which is loaded for it if need be; raises Problem.

        Callers that want the same model share one request. It takes as long as the load: callers bound it.
        """
        started = monotonic()
        if (lease := self.find(model, started, tried)) is not None:  # since the caller looked
            return lease
        if self.waiting >= self._most_waiting or self._waiting_for[model] >= self._most_waiting * MOST_OF_A_MODEL:
            raise Problem(ProblemType.BUSY, "Too many requests wait already for models to be loaded.", 1.0)
        self.waiting += 1
        self._waiting_for[model] += 1
        try:
            await self._first_answers()
            return await self._ask_around(model, tried)
        finally:
            self.waiting -= 1
            self._waiting_for[model] -= 1
            if not self._waiting_for[model]:
                del self._waiting_for[model]
            self._meter.lease_waits[self._key].add(monotonic() - started)

    async def acquire_at(self, model: str, replica: Replica) -> Lease:
        """Return a lease on a model at this very replica, for a stream that is there; raises Problem."""
        here = self.table.replicas.get(replica)
        if here is None:
            why = f"The stream's replica, {replica.name}, is leaving: open another stream."
            raise Problem(ProblemType.BUSY, why, 0.0)
        found = await self._ask(here, model, None)
        if isinstance(found, Lease):
            return found
        raise Problem(ProblemType.BUSY, f"{model} cannot be had where the stream is: {found.why}", found.retry_after)

    async def is_ready(self, model: str) -> bool:
        """Tell whether a request for a model could be answered: it is resident, or nothing speaks against a load."""
        if self.find(model, monotonic()) is not None:
            return True
        for here in self.table.in_order(model):
            try:
                state = (await here.states()).get(model, "unknown")
            except PolicyError:
                continue
            if state not in _NOT_READY:
                return True
        return False

    def doubt(self, replica: Replica) -> None:
        """Use no lease at a replica before its policy confirms it: its Triton fails."""
        if (here := self.table.replicas.get(replica)) is not None:
            here.doubt()

    def doubt_one(self, lease: Lease) -> None:
        """Use one lease no more before its policy confirms it: Triton answered that it does not know the model."""
        if (here := self.table.replicas.get(lease.replica)) is not None:
            here.doubt_one(lease)

    # --- for metrics
    def held(self, now: float) -> dict[str, int]:
        """Return the number of leases at each replica."""
        return {
            replica.name: sum(lease.held and now < lease.until for lease in list(here.leases.values()))
            for replica, here in list(self.table.replicas.items())
        }

    def silent(self) -> dict[str, bool]:
        """Return for each replica whether its policy gives no answer."""
        return {replica.name: here.silent > 0 for replica, here in list(self.table.replicas.items())}

    # --- asking
    async def _first_answers(self) -> None:
        """Wait, when the proxy has just started, until the policies have said what is resident: warm replicas first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                for here in list(self.table.replicas.values()):
                    await here.asked_once.wait()

    async def _ask_around(self, model: str, tried: Sequence[Replica]) -> Lease:
        """Ask one replica after the other; where none has room now, wait at the one that has it soonest."""
        candidates = self.table.in_order(model, tried)
        several = len(candidates) > 1
        refusals: list[_NotNow] = []
        for number, here in enumerate(candidates):
            self._meter.lease_spills[self._key] += number > 0
            found = await self._ask(here, model, 0.0 if several else None)
            if isinstance(found, Lease):
                return found
            refusals.append(found)
        if not candidates:
            where = "/".join(self._key)
            missing = f"No replica of {where} takes connections." if tried else f"No replica of {where} is there."
            raise Problem(ProblemType.BUSY, missing, max(0.1, retry_in(self.table.replicas, monotonic())))
        soonest = min(refusals)
        if several and not soonest.silent:
            found = await self._ask(candidates[refusals.index(soonest)], model, None)
            if isinstance(found, Lease):
                return found
            soonest = min([*refusals, found])
        raise Problem(ProblemType.BUSY, f"The model {model} cannot be had just now: {soonest.why}", soonest.retry_after)

    async def _ask(self, here: ReplicaLeases, model: str, room_seconds: float | None) -> Lease | _NotNow:
        """Return a lease, or why there is none for now; raises Problem where there will be none."""
        try:
            answer = await here.acquire(model, room_seconds)
        except PolicyError as error:
            why = f"the eviction policy of {here.replica.name} gives no answer: {error}."
            return _NotNow(True, AGAIN_SECONDS, why)
        if isinstance(answer, api.Granted):
            lease = self.at(model, here.replica, monotonic())
            return lease or _NotNow(True, AGAIN_SECONDS, "the lease ended as soon as it was had.")
        if isinstance(answer, api.Busy):
            return _NotNow(False, answer.retry_after, answer.why)
        raise Problem(_REFUSED[answer.outcome], answer.why)

    def _count(self, outcome: str) -> None:
        self._meter.lease_acquires[*self._key, outcome] += 1
