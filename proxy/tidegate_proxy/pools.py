"""The pools of a server: finds replicas by DNS, chooses them by load, and avoids failing ones."""

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from time import monotonic
from typing import Any, TypeVar

from tidegate_contracts import routing
from tidegate_contracts.placement import weight

from .problems import Problem, ProblemType
from .residency.manager import LeaseManager
from .settings import Tunables
from .shared_tasks import SharedTasks
from .upstream.breaker import FAILURES
from .upstream.health_check import HealthCheck
from .upstream.load_watch import IndexQuestion, LoadWatch
from .upstream.replica import LOOKUP_SECONDS, Replica, no_replica
from .upstream.request import MOST_BYTES, Answer, NoAnswerError, send

Address = tuple[int, tuple[Any, ...]]  # Address family and socket address.
Found = TypeVar("Found")
Lookup = Callable[[str, int], Awaitable[Sequence[Address]]]
RETRY_SHARE = 0.1  # Retries that each request adds to the pool's budget.
RETRIES_A_SECOND = 1.0  # Retries that each second adds, for a pool with few requests.
MOST_RETRIES = 100.0
MOST_LISTED = 1024 * 1024  # Bytes of a replica's list of models, enough for some thousand.
LISTED_SECONDS = 5.0  # Timeout of a replica's list of models.
CHECKED_SECONDS = 0.3  # Wait for health checks of new replicas. Only for the first one it is longer.
Names = Collection[str] | None
log = logging.getLogger(__name__)


async def lookup(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a name, from the system's resolver. Empty if the name is unknown."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        raise
    return [(each[0], each[4]) for each in found]


class RetryBudget:
    """Limits how many requests of a pool are sent a second time, so that retries never overload it. As in Finagle: a
    share of the requests, and a few in any case."""

    __slots__ = ("_at", "_left", "sent")

    def __init__(self, now: float) -> None:
        self._left = 10.0
        self._at = now
        self.sent = 0  # Requests since then.

    def take(self, now: float) -> bool:
        """Take a retry. Return whether one was left."""
        self._left = min(MOST_RETRIES, self._left + self.sent * RETRY_SHARE + (now - self._at) * RETRIES_A_SECOND)
        self._at, self.sent = now, 0
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Pool:
    """The replicas of one pool of a server, and the leases on its models if they are loaded on demand.

    The pool looks its name up every few seconds. It keeps an unlisted replica while that responds (see
    `tidegate_contracts.routing.Pool.host`), but uses it only if no listed one can be used. A replica returns 200 at
    `live_path` while it is alive. `index` queries a replica that loads its models by itself for failed loads.
    """

    def __init__(
        self,
        server: str,
        pool: routing.Pool,
        live_path: bytes,
        find: Lookup = lookup,
        leases: LeaseManager | None = None,
        silenced: Callable[[Replica], None] = lambda _: None,
        index: IndexQuestion | None = None,
        is_called: Callable[[str], bool] = lambda _: True,
        expected: Callable[[], Collection[tuple[str, str]]] = tuple,
        tunables: Tunables = Tunables(),
        *,
        speaks_grpc: bool = True,
    ) -> None:
        """`silenced` is called with each replica that stops responding. For the next three see `LoadWatch`."""
        self.server = server
        self.name = f"{server}/{pool.name}"  # For people.
        self.config = pool
        self.tunables = tunables
        self.replicas: list[Replica] = []
        self.retries = RetryBudget(monotonic())
        self.leases = leases
        self.listings: SharedTasks[Replica, Names] = SharedTasks()
        """Queries for the models of replicas, shared by all callers."""
        self.watches: dict[Replica, LoadWatch] = {}
        """The failed loads of each replica, if replicas load their models by themselves."""
        self._live_path = live_path
        self._grpc_port = pool.grpc_port if speaks_grpc and not pool.grpc_tls else None
        self._index = index
        self.reports_loads = index is not None  # Whether its replicas report their loaded models.
        self._is_called, self._expected = is_called, expected
        self._find = find
        self._silenced = silenced
        self._checks: dict[Replica, HealthCheck] = {}
        self._there = monotonic()  # When it last had a replica.
        if leases is not None:
            leases.nowhere = self.no_replica_problem
        self._task: asyncio.Task[None] | None = None
        self._checking: dict[Replica, asyncio.Task[None]] = {}

    def start(self) -> None:
        if self.leases is not None:
            self.leases.start()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """Stop looking replicas up. Requests in flight go on."""
        if self._task is not None:
            self._task.cancel()
        for task in self._checking.values():
            task.cancel()
        for replica in self._checks:
            replica.close()

    def pick(self, now: float, tried: Sequence[Replica] = ()) -> Replica | None:
        """Return the less busy of two random usable replicas that were not tried yet. None if there is none. The power
        of two choices: Mitzenmacher, IEEE TPDS 12(10), 2001."""
        replicas = self.replicas
        if len(replicas) == 1 and not tried:
            only = replicas[0]
            return only if not only.breaker.failures or only.breaker.allows(now) else None
        able = self._able(now, tried)
        if len(able) < 2:
            return able[0] if able else None
        one, other = random.sample(able, 2)
        return one if one.in_flight <= other.in_flight else other

    def pick_for(self, key: bytes, now: float, tried: Sequence[Replica] = ()) -> Replica | None:
        """Return the replica for all requests with this key, the same for as long as the replicas stay."""
        return max(self._able(now, tried), key=lambda each: weight(each.name, key), default=None)

    def _able(self, now: float, tried: Sequence[Replica]) -> list[Replica]:
        able = [each for each in self.replicas if each not in tried and each.breaker.allows(now)]
        able = [each for each in able if each.listed] or able
        return [each for each in able if each.avoided_until <= now] or able

    async def refresh(self) -> None:
        try:
            addresses = await self._find(self.config.host, self.config.http_port)
        except OSError as error:
            log.warning("pool %s: %s cannot be looked up: %s", self.name, self.config.host, error)
            return
        found = {tuple(address): family for family, address in addresses}
        known = {replica.address: replica for replica in self._checks}
        for address, family in found.items():
            if address not in known:
                known[address] = replica = Replica(family, address)
                self._checks[replica] = HealthCheck(
                    replica, self._live_path, self.config.host, self._changed, self._grpc_port, self.tunables
                )
                if self._index is not None and self.leases is None:
                    place = {"server": self.server, "pool": self.config.name}
                    self.watches[replica] = LoadWatch(
                        replica, self._index, self.config.host, place, self._is_called, self._expected, self.tunables
                    )
        for address, replica in known.items():
            replica.listed = address in found
        doubted = [each for each in known.values() if not each.listed or each not in self.replicas]
        for each in doubted:
            if each not in self._checking:
                self._checking[each] = asyncio.get_running_loop().create_task(self._check(each))
        if doubted:
            checking = [self._checking[each] for each in doubted]
            await asyncio.wait(checking, timeout=CHECKED_SECONDS)
            if self.why_not_ready():
                await asyncio.wait(checking)
        self._use(self.replicas)

    async def _check(self, replica: Replica) -> None:
        """Check a replica's health. From then on a new one can get calls, if its breaker allows it."""
        try:
            await self._checks[replica].ask()
            if not replica.listed and replica.breaker.is_unresponsive():
                replica.close()
                self._checks.pop(replica, None)
                self.watches.pop(replica, None)
            self._use([*self.replicas, replica])
        except Exception:
            log.exception("checking %s of %s failed unexpectedly", replica.name, self.name)
        finally:
            del self._checking[replica]

    def _use(self, replicas: Collection[Replica]) -> None:
        """Send calls to those of these replicas that are still known."""
        self.replicas = [replica for replica in self._checks if replica in replicas]
        if self.replicas:
            self._there = monotonic()
        if self.leases is not None:
            self.leases.follow(self.replicas)

    def no_replica_problem(self) -> Problem:
        """Return the problem of a call that no replica can take."""
        now = monotonic()
        return no_replica(self.name, self.replicas, now, now - self._there)

    def why_not_ready(self) -> str:
        """Return why a call would find no replica, or an empty string. A replica on trial does not count."""
        replicas = self.replicas
        if not replicas:
            if self.sleeps:
                return ""
            return f"no replica of {self.name} is there: {self.config.host}"
        if any(each.breaker.failures < FAILURES for each in replicas):
            return ""
        return f"no replica of {self.name} can be used: {', '.join(f'{r.name}: {r.breaker.why}' for r in replicas)}"

    @property
    def sleeps(self) -> bool:
        """Whether it has no replica because it gets no calls. The next call starts one."""
        return self.leases is not None and self.leases.sleeps

    def _changed(self, replica: Replica) -> None:
        """Log that a replica gets no calls any more, or gets them again."""
        breaker = replica.breaker
        fields = {"server": self.server, "pool": self.config.name, "replica": replica.name}
        if breaker.failures < FAILURES:
            log.info("%s of %s gets calls again", replica.name, self.name, extra={"data": fields})
            return
        # An unlisted replica is shutting down as planned, unless there is no other.
        level = logging.WARNING if replica.listed or self.why_not_ready() else logging.INFO
        fields["why"] = breaker.why
        log.log(level, "%s of %s gets no calls: %s", replica.name, self.name, breaker.why, extra={"data": fields})
        if breaker.is_unresponsive():
            replica.mark_unresponsive()
            if self.leases is not None:
                self.leases.mark_unresponsive(replica)
            self._silenced(replica)

    async def _follow(self) -> None:
        while True:
            started = monotonic()
            try:
                await self.refresh()
            except Exception:
                log.exception("looking up the replicas of %s failed unexpectedly", self.name)
            await asyncio.sleep(max(0.1, LOOKUP_SECONDS - (monotonic() - started)))


async def ask(
    pool: Pool,
    path: bytes,
    seconds: float,
    at: Replica | None = None,
    *,
    own_bound: bool = True,
    most: int = MOST_BYTES,
) -> Answer:
    """Return a replica's response to GET, of at most `most` bytes. See `answer_of`."""
    head = b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, pool.config.host.encode())

    async def get(replica: Replica) -> Answer:
        connection = replica.take(monotonic()) or await replica.connect(seconds)
        return await send(replica, connection, head, most=most)

    return await answer_of(pool, get, seconds, at, own_bound=own_bound)


async def listed(pool: Pool, path: bytes, replica: Replica, read: Callable[[bytes], Names]) -> Names:
    """Return the models that a replica lists at a path, read with `read`. Raises Problem or ValueError."""

    async def query() -> Names:
        answer = await ask(pool, path, LISTED_SECONDS, replica, own_bound=False, most=MOST_LISTED)
        return read(answer.body)

    return await pool.listings.join(replica, query)


async def answer_of(
    pool: Pool,
    question: Callable[[Replica], Awaitable[Found]],
    seconds: float,
    at: Replica | None = None,
    *,
    own_bound: bool = True,
) -> Found:
    """Return the result of `question` at a replica, or at `at`. Raises Problem after `seconds`.

    `question` raises OSError or NoAnswerError if there is no response. Other errors pass. A timeout is the replica's
    failure only if `seconds` is the proxy's `own_bound`, and not a caller's shorter timeout. If a replica falls silent,
    another is queried. A response does not close a breaker, because it does not show that calls would succeed.
    """
    now = monotonic()
    replica = pool.pick(now) if at is None else at
    if replica is None:
        raise pool.no_replica_problem()
    try:
        async with replica.bounded(seconds):
            return await question(replica)
    except (OSError, NoAnswerError) as error:
        if replica.breaker.is_unresponsive():
            if at is None:
                return await answer_of(pool, question, seconds - (monotonic() - now), own_bound=False)
            raise no_replica(pool.name, [replica], monotonic()) from None
        if isinstance(error, TimeoutError) and not own_bound:
            raise Problem(ProblemType.DEADLINE, "No response in time.") from None
        replica.breaker.failed(monotonic())
        why = type(error).__name__ if isinstance(error, OSError) else error
        raise Problem(ProblemType.UPSTREAM, f"No replica of {pool.name} responded: {why}.") from None
