"""The steps of a call: grant, lease, version, slot, replica, send, give back.

HTTP and gRPC differ in how they read, send and answer a request. Each has a subclass with the abstract steps. If all is
available at once (a lease, a slot, an idle connection), a call needs no task.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Literal

from tidegate_service.reasons import MOST, plain

from .access.identity import Grant
from .concurrency import ConcurrencyLimiter
from .pools import Pool
from .problems import Problem, ProblemType, lost
from .residency.leases import Lease
from .shared_state import SharedState
from .telemetry.meter import Meter
from .telemetry.records import WAITED_SECONDS
from .upstream.breaker import FAILURES, Trial
from .upstream.replica import Replica


class Forwarding:
    """The resources of one call on its way to a replica of its model's pool, or to another if the first did nothing. A
    call over HTTP is one, a call over gRPC has one. Its owner calls `give_back` exactly once."""

    __slots__ = (
        "_caller_count", "_has_slot", "_limiter", "_model_count", "_trial", "_waits", "error", "grant", "identity",
        "is_cut", "lease", "loading", "named", "pool", "read_only", "replica", "route", "sequence", "shared",
        "sticky", "tried", "version", "waited",
    )  # fmt: skip
    named: str | None  # The version that the caller names.
    pool: Pool  # The pool of the version that answers. Before the version is known, the model's first.
    read_only: bool
    """Whether it only queries its model. It does no work, so it neither tries a replica nor shows that one is back."""
    sticky: bytes | None  # Calls with the same value get the same version of a model.

    def __init__(self, shared: SharedState) -> None:
        self.shared = shared
        self.grant: Grant | None = None
        self.version: str | None = None  # The version of the model that answers. None leaves it to the server.
        self.sequence: bytes | None = None  # Id of the call's sequence, if the model may keep sequences.
        self.replica: Replica | None = None  # The replica at which the call counts as in flight.
        self.lease: Lease | None = None  # On the model at that replica, if models are loaded on demand.
        self.loading = False  # Whether the call waits for its model to be loaded.
        self.waited = 0.0  # Seconds of that wait.
        self.tried: tuple[Replica, ...] = ()  # Replicas that failed the call.
        self.error = ""  # The replica's response, if that is an error.
        self.is_cut = False  # Whether a replica may work on it even if it ends now.
        self._trial: Trial | None = None  # Its permission to try whether that replica is back.
        self._has_slot = False
        self._waits = False  # Whether it is in the queue for a slot.

    # --- implemented by each protocol
    def later(self, work: Callable[..., Awaitable[None]], *given: object) -> None:
        """Do work that waits for something in a task. Its errors end the call."""
        raise NotImplementedError

    async def answer_without_lease(self) -> None:
        """Answer a query about a model that is loaded on demand, without loading it or keeping it loaded."""
        raise NotImplementedError

    def must_find_sequence(self) -> bool:
        """Return whether the call's sequence must be found first."""
        return False

    async def find_sequence(self) -> None:
        """Find the call's sequence."""

    def take(self, replica: Replica, now: float) -> Any:
        """Return an idle connection to a replica. None if there is none."""
        raise NotImplementedError

    async def connect_to(self, replica: Replica) -> Any:
        """Return a connection to a replica, if necessary a new one. Raises OSError."""
        raise NotImplementedError

    def keep(self, connection: Any) -> None:
        """Keep an unused new connection."""

    def send(self, replica: Replica, connection: Any) -> None:
        raise NotImplementedError

    # --- the steps
    def granted(
        self,
        grant: Grant,
        now: float,
        read_only: bool,
        needs_no_lease: bool,
        named: str | None,
        must_find_sequence: bool = False,
        streams: ConcurrencyLimiter | None = None,
    ) -> None:
        """Count the call against its rate limits, and go on. Nothing else here works before that. Raises Problem. With
        `needs_no_lease`, it is answered without a lease. `streams` has the slots of calls that are streams."""
        self.grant, self.read_only, self.named = grant, read_only, named
        self.route = route = grant.route
        self.identity = identity = grant.identity
        self.pool = pool = route.pool
        self._limiter, self._model_count, self._caller_count = self.shared.limiter, route.in_flight, identity.in_flight
        if streams is not None:
            self._limiter = streams
            self._model_count, self._caller_count = self._model_count.streams, self._caller_count.streams
        grant.count(now)
        if needs_no_lease and pool.leases is not None:
            self.later(self.answer_without_lease)
        elif (pool.leases is None or self.find_lease()) and not must_find_sequence and self.find_version():
            if self.acquire_slot():
                self.go_to_replica(False)
        else:
            self.later(self.prepare)

    async def prepare(self) -> None:
        """Wait for the model's lease, the call's sequence and the version as needed. Then take a slot."""
        if not self.find_lease():
            await self.acquire_lease()
        if self.must_find_sequence():
            await self.find_sequence()
        if not self.find_version():
            await self.await_version()
        if self.acquire_slot():
            self.go_to_replica(False)

    def go_to_replica(self, waited: bool) -> None:
        """Send the call to a replica. `waited` means that it had to wait for its slot."""
        now = monotonic()
        replica = self.pick(now, waited)
        if replica is not None and (connection := self.take(replica, now)) is not None:
            self.send(replica, connection)
        else:
            self.later(self.connect, replica)

    async def connect(self, replica: Replica | None) -> None:
        """Send the call to this replica, or to the first of the others that accepts a connection. If it needs a new
        lease first, it gives its slot back meanwhile. Raises Problem (busy)."""
        pool = self.pool
        while replica is not None:
            try:
                connection = await self.connect_to(replica)
            except OSError as error:  # a timeout too: nothing was sent, so another replica can get it
                self.count_failure(replica, type(error).__name__)
                replica = self.next_replica(replica)
                continue
            if self.lease is None or monotonic() < self.lease.until:
                self.send(replica, connection)
                return
            self.keep(connection)  # the lease has expired meanwhile
            break
        if pool.leases is None or (self.tried and not pool.retries.take(monotonic())):
            raise pool.no_replica_problem()
        if self._trial is not None:
            self._trial.given_up()
        self.release_slot()
        await self.prepare()

    # --- its lease and its version
    def find_lease(self) -> bool:
        """Find a lease on the model, if it is loaded on demand. Return False if one must be acquired."""
        route = self.route
        if route.pool.leases is None:
            return True
        self.lease = route.pool.leases.find(route.name, monotonic(), self.tried, self.sequence is not None)
        return self.lease is not None

    async def acquire_lease(self) -> None:
        """Load the model if necessary, and get a lease on it. Raises Problem. Hold no slot meanwhile."""
        route = self.route
        assert route.pool.leases is not None
        self.loading, started = True, monotonic()
        try:
            self.lease = await route.pool.leases.acquire(route.name, self.tried)
        finally:
            self.waited += monotonic() - started
        self.loading = False

    def find_version(self) -> bool:
        """Find the version that answers. Return False if the model's alias must be awaited."""
        route, named = self.route, self.named
        if route.alias is None or named is not None:
            self.version = route.version(named, self.sticky or self.sequence)  # one sequence has one version
        else:
            self.version = route.alias.known(monotonic())
            if self.version is None:
                return False
        if route.is_split:
            self.pool = route.pool_of(self.version)
        return True

    async def await_version(self) -> None:
        """Find the version that the model's alias means. Raises Problem (busy)."""
        alias = self.route.alias
        assert alias is not None
        self.version = await alias.find()
        self.pool = self.route.pool_of(self.version)

    # --- its slot
    def acquire_slot(self) -> bool:
        """Take a slot. Return False if it is `admitted` later. Raises Problem (busy) if the queue is full."""
        if self._limiter.try_acquire(self._model_count, self._caller_count):
            self._has_slot = True
            return True
        if not self._limiter.enqueue(self, self._model_count, self._caller_count, self.waited > 0):
            raise Problem(ProblemType.BUSY, "Too many requests are already waiting.", 1.0, reason="queue-full")
        self._waits = True
        return False

    def admitted(self) -> None:
        """Take the slot that the call has waited for. Protocols go on from here."""
        self._waits, self._has_slot = False, True

    def release_slot(self) -> None:
        if self._has_slot:
            self._has_slot = False
            if self.is_cut:
                self._limiter.cut(self._model_count, self._caller_count)
            else:
                self._limiter.release(self._model_count, self._caller_count)

    # --- its replica
    def pick(self, now: float, refresh_lease: bool = False) -> Replica | None:
        """Return the replica to call. None if there is none. `refresh_lease` looks for another lease."""
        if self.read_only:
            failing = tuple(each for each in self.pool.replicas if each.breaker.failures >= FAILURES)
            self.tried, refresh_lease = self.tried + failing, refresh_lease or bool(failing)
        replica = self._choose(now, refresh_lease)
        if replica is not None and (breaker := replica.breaker).failures:
            self._trial = breaker.claim(now)
        return replica

    def _choose(self, now: float, refresh_lease: bool) -> Replica | None:
        route, sequence, pool = self.route, self.sequence, self.pool
        if pool.leases is None:
            if sequence is None:
                return pool.pick(now, self.tried)
            return pool.pick_for(route.name.encode() + b"\0" + sequence, now, self.tried)
        lease, sequential = self.lease, sequence is not None
        if lease is None or refresh_lease or sequential or now >= lease.until or not lease.replica.breaker.allows(now):
            self.lease = lease = pool.leases.find(route.name, now, self.tried, sequential)
        return None if lease is None else lease.replica

    def next_replica(self, failed: Replica) -> Replica | None:
        """Return another replica for the call, if there is one and the pool has a retry left."""
        self.tried += (failed,)
        now = monotonic()
        replica = self._choose(now, True)
        if replica is None or not self.pool.retries.take(now):
            return None
        self._trial = replica.breaker.claim(now)
        return replica

    # --- counts at its replica
    def sent_to(self, replica: Replica) -> None:
        """Count the call as in flight at a replica."""
        self.replica = replica
        replica.in_flight += 1
        if self.lease is not None:
            self.lease.enter()
        self.pool.retries.sent += 1

    def answered(self) -> None:
        """Note that the replica responds, even if with an error."""
        if self.replica is not None and not self.read_only and (breaker := self.replica.breaker).failures:
            breaker.succeeded(self._trial)

    def count_failure(self, replica: Replica, how: str) -> None:
        """Count that a replica failed the call. `how` is a word for metrics."""
        route = self.route
        replica.breaker.failed(monotonic(), self._trial)
        self.shared.meter.upstream_errors[route.server, how] += 1
        if route.pool.leases is not None:
            route.pool.leases.doubt(replica)

    def avoid(self, replica: Replica) -> Replica | None:
        """Prefer other replicas for a while, because this one lacks the model. Return one as `next_replica` does."""
        replica.avoided_until = monotonic() + self.shared.tunables.avoided_seconds
        self.shared.meter.upstream_errors[self.route.server, "lost"] += 1
        return self.next_replica(replica)

    def leave_replica(self, now: float) -> None:
        if self.replica is not None:
            self.replica.in_flight -= 1
            self.replica = None
            if self.lease is not None:
                self.lease.leave(now)

    # --- a model that the replica no longer has
    def may_be_lost(self) -> bool:
        """Return whether the lease seems to be on the named version. No other version can have been lost."""
        lease, version = self.lease, self.version
        return lease is not None and (version is None or not lease.versions or int(version) in lease.versions)

    def lost(self) -> Problem:
        """Doubt the lease, because the server does not know its model. Return the caller's problem."""
        route = self.route
        assert self.lease is not None
        if route.pool.leases is not None:
            route.pool.leases.doubt_one(self.lease)
        return lost(route.name)

    # --- its end
    def give_back(self, now: float) -> None:
        """Give everything back. Afterwards `replica` still names the call's last one."""
        last = self.replica
        self.leave_replica(now)
        self.replica = last
        if self._trial is not None:
            self._trial.given_up()
        if self._waits:
            self._limiter.cancel(self, self._model_count, self._caller_count)
        self.release_slot()


def call_record(
    forwarding: Forwarding | None,
    protocol: Literal["http", "grpc"],
    request_id: bytes,
    verb: str,
    target: tuple[str | None, str | None],
    problem: Problem | None,
    seconds: float,
    size: tuple[int, int],
    traceparent: bytes,
) -> dict[str, Any]:
    """Return the record of a call for logs and traces. `target` are server and model, `size` is bytes in and out.
    `problem` ended it, if any. Unknown fields are None."""
    error = forwarding.error if forwarding is not None else ""
    grant = forwarding.grant if forwarding is not None else None
    return {
        "protocol": protocol,
        "requestId": request_id.decode(),
        "traceId": traceparent[3:35].decode() or None,
        "verb": verb,
        "server": grant.route.server if grant else target[0],
        "model": target[1],
        "version": forwarding.version if forwarding is not None else None,
        "problem": problem.type.word if problem else None,
        "reason": problem.why if problem else None,
        "why": (problem.detail[:MOST] if problem else plain(error)) or None,
        "principal": grant.identity.principal.name if grant else None,
        "pool": forwarding.pool.config.name if forwarding is not None and grant else None,
        "replica": where(problem, forwarding) or None,
        "seconds": round(seconds, 6),
        "waitedSeconds": round(forwarding.waited, 6) if forwarding and forwarding.waited >= WAITED_SECONDS else None,
        "bytesIn": size[0],
        "bytesOut": size[1],
    }


def where(problem: Problem | None, forwarding: Forwarding | None) -> str:
    """Return the name of the call's last replica, or of the one that refused it."""
    if forwarding is not None and forwarding.replica is not None:
        return forwarding.replica.name
    return "" if problem is None else problem.replica


def count_problem(meter: Meter, problem: Problem, forwarding: Forwarding | None) -> None:
    """Count a problem that ends a call, with all that is known of the call. If a replica got a part of it, it may have
    done the work, so a FULL problem loses its `Retry-After`."""
    if problem.type is ProblemType.FULL and forwarding is not None and forwarding.replica is not None:
        problem.retry_after = None
    if forwarding is None or forwarding.grant is None:
        meter.problem(problem)
    else:
        route = forwarding.route
        model = "" if forwarding.read_only else route.name  # read-only calls are not work of the model
        meter.problem(problem, route.server, forwarding.pool.config.name, where(problem, forwarding), model)


def no_whole_answer(reason: str) -> Problem:
    """Return the problem of a call whose replica got the request, but sent no complete response."""
    what = f"The inference server sent no complete response: {reason}. It may have done the work. "
    return Problem(ProblemType.UPSTREAM, what + "Send the request again only if that does no harm.")
