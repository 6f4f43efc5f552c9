"""The holder's own code under simulated time: messages are late or lost, policies restart, hang and end.

Whatever happens, a request is begun only under a lease that its policy knows of and that lasts for a while yet.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidegate_contracts import lease, routing
from tidegate_proxy.pools import Pool
from tidegate_proxy.problems import Kind, Problem
from tidegate_proxy.residency import manager, rebalancing, replica_leases, table
from tidegate_proxy.residency.client import GoneError, PolicyError
from tidegate_proxy.residency.leases import Lease
from tidegate_proxy.residency.manager import LeaseManager
from tidegate_proxy.telemetry.meter import Meter
from tidegate_proxy.upstream.replica import Replica

EXAMPLES = int(os.environ.get("FUZZ") or 25)
"""Worlds that are lived through; `make fuzz` has more."""
LEASE_SECONDS = 6.0
MODELS = ("a", "b", "c", "d", "e")


class Loop(asyncio.SelectorEventLoop):
    """Its clock jumps to whatever is due next."""

    now = 1000.0

    def time(self) -> float:
        """Return the simulated seconds."""
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


class Desk:
    """A policy and its Triton. Its leases count from when it grants; it unloads whatever nobody has a lease on."""

    def __init__(self, world: "World", room: int) -> None:
        self.world = world
        self.room = room
        self.incarnation = 1
        self.how = "well"
        self.resident: set[str] = set()
        self.leases: dict[tuple[str, str], float] = {}
        self.all_until = 0.0
        """After a start every model counts as leased so long."""
        self.lost_until = 0.0
        """Triton was started anew so lately that nobody can know."""
        self.loading: set[str] = set()

    def is_leased(self, model: str) -> bool:
        """Tell whether anybody holds a model, or may do so."""
        now = self.world.loop.now
        return now < self.all_until or any(name == model and now < until for (_, name), until in self.leases.items())

    def evict(self) -> None:
        """Unload what may be unloaded."""
        self.resident = {model for model in self.resident if self.is_leased(model)}

    def start_anew(self, triton_too: bool) -> None:
        """Be another process; perhaps Triton is another one, too."""
        self.incarnation += 1
        self.leases.clear()
        self.all_until = self.world.loop.now + LEASE_SECONDS
        self.how = "well"
        if triton_too:
            self.resident.clear()
            self.lost_until = self.all_until

    async def acquire(self, message: lease.Acquire) -> lease.Answer:
        """Grant, after a load."""
        began, incarnation = self.world.loop.now, self.incarnation
        if message.model not in self.resident:
            if len(self.resident | self.loading) >= self.room and message.model not in self.loading:
                self.evict()
            if len(self.resident | self.loading) >= self.room and message.model not in self.loading:
                return lease.Busy(retry_after=1.5, why="full.")
            self.loading.add(message.model)
            await asyncio.sleep(self.world.chance.choice([0.1, 1.0, 9.0]))
            self.loading.discard(message.model)
            if self.how == "ended" or incarnation != self.incarnation:
                raise PolicyError("it was restarted")
            self.resident.add(message.model)
        now = self.world.loop.now
        self.leases[message.holder, message.model] = now + LEASE_SECONDS
        return lease.Granted(
            incarnation=str(self.incarnation),
            lease_seconds=LEASE_SECONDS + now - began,
            versions=(1,),
            waited_seconds=now - began,
        )

    async def renew(self, message: lease.Renew) -> lease.Renewed:
        """Renew what is known."""
        now, lost = self.world.loop.now, []
        for model in message.models:
            key = message.holder, model
            if message.incarnation == str(self.incarnation) and now < self.leases.get(key, 0.0):
                self.leases[key] = now + LEASE_SECONDS
            else:
                lost.append(model)
        return lease.Renewed(
            incarnation=str(self.incarnation),
            lease_seconds=LEASE_SECONDS,
            lost=tuple(lost),
            resident=tuple(self.resident),
            accepts=self.how != "leaving",
        )

    async def release(self, message: lease.Release) -> None:
        """Take leases back."""
        if message.incarnation == str(self.incarnation):
            for model in message.models:
                self.leases.pop((message.holder, model), None)


class Wire:
    """Stands for `residency.client.Client`: every message takes its time, both ways, and some are lost."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def _carry(self, ask: Any, message: Any, seconds: float | None) -> Any:
        world, how = self.desk.world, self.desk.how
        if how == "ended":
            raise GoneError("nobody listens")

        async def arrive() -> Any:
            await asyncio.sleep(world.delay())
            incarnation = self.desk.incarnation
            while self.desk.how == "hangs":
                await asyncio.sleep(0.1)
            if self.desk.how == "ended" or incarnation != self.desk.incarnation:
                raise PolicyError("its process has ended")
            return await ask(message)

        # What has been sent arrives, whether the sender still waits for it or not.
        task = asyncio.ensure_future(arrive())
        world.sent.add(task)
        task.add_done_callback(world.landed)
        try:
            async with asyncio.timeout(seconds):
                answer = await asyncio.shield(task)
                await asyncio.sleep(world.delay())
        except TimeoutError:
            raise PolicyError("it does not answer") from None
        if world.chance.random() < world.loss:
            raise PolicyError("the connection ended")
        return answer

    async def acquire(self, message: lease.Acquire) -> Any:
        """Carry it."""
        return await self._carry(self.desk.acquire, message, None)

    async def renew(self, message: lease.Renew, seconds: float) -> Any:
        """Carry it."""
        return await self._carry(self.desk.renew, message, seconds)

    async def release(self, message: lease.Release, seconds: float) -> None:
        """Carry it."""
        await self._carry(self.desk.release, message, seconds)

    def close(self) -> None:
        """Do nothing."""


class World:
    """Proxies, replicas, and requests, for so many simulated seconds."""

    def __init__(self, seed: int, loss: float, replicas: int, proxies: int, room: int) -> None:
        self.loop = Loop()
        self.chance = random.Random(seed)
        self.loss = loss
        self.sent: set[asyncio.Future[Any]] = set()
        self.desks = [Desk(self, room) for _ in range(replicas)]
        self.replicas = [Replica(2, (f"10.0.0.{each}", 8000)) for each in range(replicas)]
        self.at = {replica.address[0]: desk for replica, desk in zip(self.replicas, self.desks, strict=True)}
        self.number = proxies
        self.begun = 0
        self.refused: Counter[Kind] = Counter()
        self.wrong: list[str] = []
        self.under_way: dict[tuple[str, str], int] = Counter()

    def landed(self, task: "asyncio.Future[Any]") -> None:
        """Forget a message: whoever sent it may be gone."""
        self.sent.discard(task)
        if not task.cancelled():
            task.exception()

    def delay(self) -> float:
        """Return how long a message is under way: mostly nothing, sometimes long."""
        return self.chance.choice([0.0, 0.0, 0.001, 0.001, 0.01, 0.3, 1.2])

    async def request(self, front: LeaseManager, model: str) -> None:
        """Be a request, as the door has it."""
        sequence = model == "e"
        found: Lease | None = front.find(model, self.loop.now, (), sequence)
        try:
            async with asyncio.timeout(20):
                found = found or await front.acquire(model)
        except Problem as problem:
            self.refused[problem.kind] += 1
            return
        except TimeoutError:
            return
        if self.loop.now >= found.until:
            return
        desk = self.at[found.replica.address[0]]
        found.enter()
        found.replica.in_flight += 1
        self.begun += 1
        self.under_way[found.replica.name, model] += 1
        arrives = self.loop.now + 0.5  # within the share of a lease that is left for the way
        for when in (self.loop.now, arrives):
            await asyncio.sleep(max(0.0, when - self.loop.now))
            if model not in desk.resident and self.loop.now >= desk.lost_until:
                self.wrong.append(f"{self.loop.now:.2f}: {model} is not at {found.replica.name}")
        await asyncio.sleep(self.chance.choice([0.01, 0.01, 0.5, 8.0]))
        found.replica.in_flight -= 1
        found.leave(self.loop.now)
        self.under_way[found.replica.name, model] -= 1

    async def trouble(self) -> None:
        """Do something bad every now and then."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 6))
            desk = self.chance.choice(self.desks)
            what = self.chance.choice(["well", "well", "hangs", "ended", "restart", "triton", "leaving"])
            if what in ("restart", "triton"):
                desk.start_anew(what == "triton")
            elif desk.how == "ended":
                desk.start_anew(False)
            else:
                desk.how = what

    async def unload(self) -> None:
        """Let every policy that lives unload what it may, at once."""
        while True:
            await asyncio.sleep(0.1)
            for desk in self.desks:
                if desk.how != "ended":
                    desk.evict()

    async def run(self, seconds: float) -> list[LeaseManager]:
        """Live for a while."""
        told = routing.Pool(name="p", host="h", http_port=8000, grpc_port=1, loading="on-demand", lease_port=1)
        fronts = []
        for each in range(self.number):
            pool = Pool("s", told)
            pool.replicas = [Replica(2, replica.address) for replica in self.replicas]
            pool.leases = LeaseManager("s", told, f"proxy{each}", Meter(), 1.0, 1000)
            pool.leases.follow(pool.replicas)
            pool.leases.start()
            fronts.append(pool.leases)
        others = [asyncio.ensure_future(work) for work in (self.trouble(), self.unload())]
        requests = []
        end = self.loop.now + seconds
        while self.loop.now < end:
            await asyncio.sleep(self.chance.choice([0.0, 0.05, 0.5, 3.0]))
            front, model = self.chance.choice(fronts), self.chance.choice(MODELS)
            requests += [
                asyncio.ensure_future(self.request(front, model)) for _ in range(self.chance.choice([1, 1, 5]))
            ]
        await asyncio.gather(*requests)
        for other in others:
            other.cancel()
        for desk in self.desks:
            desk.how = "well"
        await asyncio.gather(*(front.leave() for front in fronts))
        for task in list(self.sent):
            task.cancel()
        return fronts


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (replica_leases, manager, rebalancing, table):
            patch.setattr(module, "monotonic", lambda: asyncio.get_running_loop().time())

        def wire(replica: Replica, *_: Any) -> Wire:
            loop = asyncio.get_running_loop()
            return Wire(WORLDS[loop].at[replica.address[0]])  # type: ignore[index]

        async def is_ready(self: replica_leases.ReplicaLeases, model: str) -> bool:
            await asyncio.sleep(0.001)
            loop = asyncio.get_running_loop()
            return model in WORLDS[loop].at[self.replica.address[0]].resident  # type: ignore[index]

        patch.setattr(manager, "LeaseClient", wire)
        patch.setattr(replica_leases.ReplicaLeases, "_is_ready", is_ready)
        yield


WORLDS: dict[Loop, World] = {}


def live(world: World, seconds: float) -> list[LeaseManager]:
    """Run a world to its end."""
    WORLDS[world.loop] = world
    asyncio.set_event_loop(world.loop)
    try:
        return world.loop.run_until_complete(world.run(seconds))
    finally:
        del WORLDS[world.loop]
        world.loop.close()
        asyncio.set_event_loop(None)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    replicas=st.integers(1, 3),
    proxies=st.integers(1, 2),
    room=st.integers(1, 6),
)
def test_no_request_is_ever_begun_at_a_replica_that_may_unload_its_model(
    seed: int, loss: float, replicas: int, proxies: int, room: int
) -> None:
    world = World(seed, loss, replicas, proxies, room)
    fronts = live(world, 120.0)
    assert not world.wrong
    assert set(world.refused) <= {Kind.BUSY}
    assert not any(world.under_way.values())
    for front in fronts:
        assert front.waiting == 0
        assert not front.table.replicas
        for each in front.table.models.values():
            assert not each.leases


def test_in_fair_weather_nothing_is_refused_and_every_lease_is_given_back() -> None:
    world = World(7, 0.0, 3, 2, 9)

    async def fair() -> None:
        await asyncio.sleep(1e6)

    world.trouble = fair  # type: ignore[method-assign]
    live(world, 600.0)
    assert world.begun > 300
    assert not world.refused
    assert not world.wrong
    assert not any(desk.leases for desk in world.desks)
