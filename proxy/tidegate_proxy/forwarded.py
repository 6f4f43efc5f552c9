"""A call on its way to a replica, over HTTP or gRPC: which one gets it, what is counted there, and which is the next.

The two protocols differ in how a request is read and an answer written; what is here is the same for both.
"""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from .access.identity import Grant
from .mirror import AnyCopy
from .problems import Kind, Problem
from .residency.saying import lost
from .shared_state import SharedState
from .telemetry.records import CallRecord
from .upstream.breaker import Trial
from .upstream.replica import Replica

if TYPE_CHECKING:
    from .residency.leases import Lease
    from .residency.manager import LeaseManager
    from .telemetry.traces import Span

C = TypeVar("C")
"""What a request is sent on: a connection of its own, or one that calls share."""


class Forwarded(Generic[C]):
    """One request that goes to a replica of its model's pool, and to another one where the first did nothing."""

    shared: SharedState
    deadline: float
    request_id: bytes
    # What most calls never change costs them nothing here.
    _grant: Grant | None = None
    _version: str | None = None
    _sequence: bytes | None = None
    """The sequence that it is of, where the model may keep them."""
    _replica: Replica | None = None
    """Where it is counted as under way."""
    _lease: "Lease | None" = None
    """On the model at that replica, where models are loaded on demand."""
    _trial: Trial | None = None
    """Its leave to find out whether that replica is back."""
    _tried: tuple[Replica, ...] = ()
    """Replicas that failed it."""
    _loading = False
    """Whether it waits for its model to be loaded."""
    _waited = False
    """Whether it has."""
    _placed = False
    _in_line = False
    """Whether it waits for a place."""
    _task: asyncio.Task[None] | None = None
    _problem: str | None = None
    """The word of the problem that ended it."""
    _copy: AnyCopy | None = None
    _span: "Span | None" = None
    _passed: bytes | None = None

    # --- what each protocol does in its own way
    @property
    def _model(self) -> str:
        """The model that is asked for."""
        raise NotImplementedError

    def fail(self, problem: Problem) -> None:
        """End it with a problem."""
        raise NotImplementedError

    def _leased(self) -> None:
        """Go on: there is a lease."""
        raise NotImplementedError

    def _leave_place(self) -> None:
        raise NotImplementedError

    async def _connection_to(self, replica: Replica) -> C:
        """Return what the request can be sent on; raises OSError, TimeoutError too."""
        raise NotImplementedError

    def _not_used(self, replica: Replica, connection: C) -> None:
        """Give a connection back on which nothing was sent."""

    def _send_head(self, replica: Replica, connection: C) -> None:
        raise NotImplementedError

    # --- choosing a replica
    def _pick(self, now: float, anew: bool) -> Replica | None:
        """Return the replica that it goes to; `anew`: a lease that was found before is looked for again."""
        assert self._grant is not None
        pool = self._grant.route.pool
        if pool.leases is None:
            if self._sequence is None:
                return pool.pick(now, self._tried)
            return pool.pick_for(self._model.encode() + b"\0" + self._sequence, now, self._tried)
        lease, sequential = self._lease, self._sequence is not None
        if lease is None or anew or sequential or now >= lease.until or not lease.replica.breaker.allows(now):
            self._lease = lease = pool.leases.find(self._model, now, self._tried, sequential)
        return None if lease is None else lease.replica

    def _other(self, failed: Replica) -> Replica | None:
        """Return another replica to send the request to, if there is one, and retries are not used up."""
        assert self._grant is not None
        self._tried += (failed,)
        now = monotonic()
        other = self._pick(now, True)
        if other is None or not self._grant.route.pool.retries.take(now):
            return None
        self._trial = other.breaker.claim(now)
        return other

    async def _connect(self, replica: Replica | None) -> None:
        """Send it to this replica, or to the first of the others that takes connections; raises Problem."""
        assert self._grant is not None
        pool = self._grant.route.pool
        while replica is not None:
            try:
                connection = await self._connection_to(replica)
            except OSError as error:  # a time-out too: nothing was sent, so another replica may have it
                self._count_failure(replica, type(error).__name__)
                replica = self._other(replica)
                continue
            if self._lease is not None and monotonic() >= self._lease.until:
                self._not_used(replica, connection)
                break
            self._send_head(replica, connection)
            return
        if pool.leases is not None and (not self._tried or pool.retries.take(monotonic())):
            # It ended meanwhile, or its replica takes no connections.
            self._give_up_trial()
            self._leave_place()
            await self._get_lease(pool.leases)
            return
        where = f"{pool.server}/{pool.name}"
        why = f"No replica of {where} takes connections." if self._tried else f"No replica of {where} is there."
        raise Problem(Kind.BUSY, why, max(0.1, pool.retry_in(monotonic())))

    async def _get_lease(self, leases: "LeaseManager") -> None:
        """Have the model loaded, if it is not: nothing else is held meanwhile."""
        self._loading = True
        self._lease = await leases.acquire(self._model, self._tried)
        self._loading, self._waited = False, True
        self._leased()

    # --- what is counted at a replica
    def _count_failure(self, replica: Replica, how: str) -> None:
        assert self._grant is not None
        route = self._grant.route
        replica.failures += 1
        replica.breaker.failed(monotonic(), self._trial)
        self.shared.meter.upstream_errors[route.server, how] += 1
        if (leases := route.pool.leases) is not None:
            leases.doubt(replica)

    def _give_up_trial(self) -> None:
        if self._trial is not None:
            self._trial.given_up()

    def _release_replica(self) -> None:
        if self._replica is not None:
            self._replica.in_flight -= 1
            self._replica = None
            if self._lease is not None:
                self._lease.leave(monotonic())

    # --- its end
    def _has_version(self) -> bool:
        """Tell whether its lease is on the version asked for, as far as is known: of no other can anything be lost."""
        lease, version = self._lease, self._version
        return lease is not None and (version is None or not lease.versions or int(version) in lease.versions)

    def _lost_model(self) -> None:
        """Tell the caller to come again: Triton was started anew, and nobody has told so far."""
        assert self._grant is not None
        assert self._lease is not None
        if (leases := self._grant.route.pool.leases) is not None:
            leases.doubt_one(self._lease)
        self.fail(lost(self._model))

    def _told_as(
        self,
        protocol: Literal["http", "grpc"],
        verb: str,
        asked: tuple[str | None, str | None],
        seconds: float,
        size: tuple[int, int],
    ) -> CallRecord:
        """Return what is told of it in logs and traces: `asked` are server and model, `size` is bytes in and out."""
        grant, replica = self._grant, self._replica
        return CallRecord(
            protocol=protocol,
            request_id=self.request_id.decode(),
            verb=verb,
            server=grant.route.server if grant else asked[0],
            model=asked[1],
            version=self._version,
            problem=self._problem,
            principal=grant.identity.principal.name if grant else None,
            replica=replica.name if replica else None,
            seconds=seconds,
            bytes_in=size[0],
            bytes_out=size[1],
        )


def no_place() -> Problem:
    """Return what is told when there is no place, and none in line."""
    return Problem(Kind.BUSY, "Too many requests wait already.", 1.0)
