"""The proxies' lease code and the eviction policies' decisions, joined in simulated time, without processes."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from selectors import DefaultSelector, SelectorKey
from typing import Any

import pytest
from tidegate_contracts import lease, routing
from tidegate_eviction.core.messages import (
    Answered,
    Command,
    Load,
    ModelSpec,
    PoolSettings,
    ServerInventory,
    Step,
    Ticket,
    Unload,
)
from tidegate_eviction.core.residency import Residency
from tidegate_eviction.policies.registry import find
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_proxy.residency import manager, replica_leases, table
from tidegate_proxy.residency.client import GoneError, PolicyError
from tidegate_proxy.residency.leases import Lease
from tidegate_proxy.residency.manager import LeaseManager
from tidegate_proxy.telemetry.meter import Meter
from tidegate_proxy.upstream.replica import Replica

from .estate import OFTEN

LEASE_SECONDS = 6.0
MODELS = ("a", "b", "c", "d", "e")
RULES = PoolSettings(1, find("lru-idle"), 2.0, LEASE_SECONDS, wait_seconds=8.0, loads_at_once=2, measures=False)
LONGEST_WAIT = 90.0
"""Requests to three replicas in turn, each until its wait ends or it is found silent, and to the best once more."""


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next due time."""

    now = 1000.0
    world: "World"

    def __init__(self) -> None:
        super().__init__(Jumps(self))

    def time(self) -> float:
        return self.now


class Jumps(DefaultSelector):
    """A loop's selector that does not wait, but moves the clock."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout:
            self._loop.now = self._loop._scheduled[0]._when  # type: ignore[attr-defined]
        return super().select(timeout and 0)


class Site:
    """A Triton server that obeys, and its policy: a real `Residency`, for one byte a model."""

    def __init__(self, world: "World", room: int) -> None:
        self.world = world
        self.how = "well"  # The policy's process: it works, hangs, or has ended.
        self.starts = 0
        self.lost_until = 0.0  # Triton restarted so recently that no proxy can know.
        self.resident: set[str] = set()  # Models that Triton has loaded.
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._unloading: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rules = replace(RULES, capacity_bytes=room)
        self.start()

    # --- the policy's process
    def start(self) -> None:
        """Start the policy again. It knows only what Triton reports."""
        for future in self._answers.values():
            future.set_exception(PolicyError("it was restarted"))
        self._answers = {}
        self.starts += 1
        self.how = "well"
        now = self.world.loop.now
        self.core = Residency(self._rules, f"start-{self.starts}", now)
        specs = {model: ModelSpec(model, footprint_bytes=1) for model in MODELS}
        self._do(self.core.configure(self._rules, specs, now))
        found = ServerInventory(tuple(self.resident), tuple(self._loading), tuple(self._unloading))
        self._do(self.core.recover(found, now))

    def leave(self) -> None:
        """Make the policy leave: it grants nothing more."""
        self._do(self.core.leave(self.world.loop.now))

    async def acquire(self, message: lease.Acquire) -> lease.Answer:
        now = self.world.loop.now
        step, answer = self.core.acquire(message.model, message.holder, message.wait_seconds, now, message.room_seconds)
        if isinstance(answer, Ticket):
            future = self._answers[answer.number] = asyncio.get_running_loop().create_future()
            self._do(step)
            return await future  # type: ignore[no-any-return]
        self._do(step)
        return answer

    async def renew(self, message: lease.Renew) -> lease.Renewed:
        step, answer = self.core.renew(message.holder, message.incarnation, message.models, self.world.loop.now)
        self._do(step)
        return answer

    async def release(self, message: lease.Release) -> None:
        now, serials = self.world.loop.now, message.serials or {}
        self._do(self.core.release(message.holder, message.incarnation, message.models, now, serials))

    def _do(self, step: Step) -> None:
        for event in step.events:
            if isinstance(event, Answered) and (future := self._answers.pop(event.ticket.number, None)) is not None:
                future.set_result(event.answer)
        for command in step.commands:
            self.world.run(self._carry_out(self.core, command))
        if self._timer is not None:
            self._timer.cancel()
        if (due := self.core.next_deadline()) is not None:
            self._timer = self.world.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        if self.how != "ended":
            self._do(self.core.tick(self.world.loop.now))

    # --- Triton
    async def _carry_out(self, core: Residency, command: Command) -> None:
        # The next policy watches work that was begun for a policy that is gone, and does not begin it again.
        if isinstance(command, Load):
            work = self._loading.get(command.model) or self.world.run(self._load(command.model))
            self._loading[command.model] = work
        else:
            assert isinstance(command, Unload)
            if command.model not in self._unloading:
                self.world.check_unload(self, command.model)
            work = self._unloading.get(command.model) or self.world.run(self._unload(command.model))
            self._unloading[command.model] = work
        await asyncio.wait([work])
        if core is not self.core or work.cancelled() or self.how == "ended":
            return
        if isinstance(command, Load):
            self._do(core.load_ended(command.number, self.world.loop.now, versions=(1,)))
        else:
            self._do(core.unload_ended(command.number, self.world.loop.now))

    async def _load(self, model: str) -> None:
        loading = self._loading  # of this start of Triton
        try:
            await asyncio.sleep(self.world.chance.choice(self.world.loads))
            self.resident.add(model)
        finally:
            del loading[model]

    async def _unload(self, model: str) -> None:
        self.resident.discard(model)
        unloading = self._unloading
        try:
            await asyncio.sleep(self.world.chance.choice([0.01, 0.3]))
        finally:
            del unloading[model]

    def restart_triton(self) -> None:
        """Restart Triton without models. The policy goes on, or restarts too."""
        for work in (*self._loading.values(), *self._unloading.values()):
            work.cancel()
        self.resident.clear()
        self._loading, self._unloading = {}, {}
        self.lost_until = self.world.loop.now + LEASE_SECONDS
        if self.how == "ended":
            self.start()
        else:
            self._do(self.core.server_lost(self.world.loop.now))
            self._do(self.core.recover(ServerInventory(), self.world.loop.now))


class Wire:
    """Replaces `LeaseClient`: every message takes time both ways, and some are lost."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.granted: dict[str, str] = {}  # The start of the policy and its Triton to which each model's lease belongs.

    async def _carry(self, ask: Any, message: Any, seconds: float | None) -> Any:
        site, world = self.site, self.site.world
        if site.how == "ended":
            raise GoneError("there is no listener")

        async def arrive() -> Any:
            await asyncio.sleep(world.delay())
            start = site.starts
            while site.how == "hangs":
                await asyncio.sleep(0.1)
            if site.how == "ended" or start != site.starts:
                raise PolicyError("its process has ended")
            return await ask(message)

        # A sent message arrives, whether or not the sender still waits for it.
        task = world.run(arrive())
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
        return await self._carry(self.site.acquire, message, None)

    async def renew(self, message: lease.Renew, seconds: float) -> Any:
        return await self._carry(self.site.renew, message, seconds)

    async def release(self, message: lease.Release, seconds: float) -> None:
        await self._carry(self.site.release, message, seconds)

    def close(self) -> None: ...


class World:
    def __init__(self, seed: int, replicas: int, proxies: int, room: int, loss: float = 0.0) -> None:
        self.loop = Loop()
        self.loop.world = self
        self.chance = random.Random(seed)
        self.loss = loss
        self.delays = [0.0, 0.0, 0.001, 0.001, 0.01, 0.3, 1.2]  # Of messages. Two of the last make a timeout.
        self.loads: tuple[float, ...] = (0.1, 1.0, 9.0)  # Seconds. The last is longer than callers wait.
        self.begun = 0  # Requests that began under a lease.
        self.refused: Counter[ProblemType] = Counter()
        self.wrong: list[str] = []
        self.longest_wait = 0.0
        self.proxies: list[LeaseManager] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._number = proxies
        self._room = room
        self.sites: dict[str, Site] = {f"10.0.0.{each}": Site.__new__(Site) for each in range(replicas)}

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin some work. It is not a failure if no one waits for it any more."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PolicyError):
            self.wrong.append(repr(error))

    def delay(self) -> float:
        return self.chance.choice(self.delays)

    def check_unload(self, site: Site, model: str) -> None:
        """Check that no proxy can begin a request for a model that is being unloaded."""
        for proxy in self.proxies:
            for replica, here in proxy.table.replicas.items():
                held = here.leases.get(model)
                if self.sites[replica.address[0]] is site and held is not None and self.loop.now < held.until:
                    self.wrong.append(f"{self.loop.now:.2f}: {model} is unloaded at {replica.name}, and leased")

    async def begin(self) -> None:
        for site in self.sites.values():
            site.__init__(self, self._room)  # type: ignore[misc]
        pool = routing.Pool(name="p", host="h", http_port=8000, grpc_port=1, loading="on-demand", lease_port=1)
        for number in range(self._number):
            proxy = LeaseManager("s", pool, f"proxy{number}", Meter(), 1.0, 1000, OFTEN)
            proxy.follow([Replica(2, (host, 8000)) for host in self.sites])
            proxy.start()
            self.proxies.append(proxy)

    async def end(self) -> None:
        for site in self.sites.values():
            if site.how == "ended":
                site.start()
            site.how = "well"
        await asyncio.gather(*(proxy.leave() for proxy in self.proxies))
        for task in list(self._tasks):
            task.cancel()

    async def request(self, proxy: LeaseManager, model: str) -> bool:
        began = self.loop.now
        found: Lease | None = proxy.find(model, began, (), sequence=model == "e")
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                found = found or await proxy.acquire(model)
        except Problem as problem:
            self.refused[problem.type] += 1
            return False
        except TimeoutError:
            self.wrong.append(f"{self.loop.now:.2f}: a request for {model} waits since {began:.2f}")
            return False
        finally:
            self.longest_wait = max(self.longest_wait, self.loop.now - began)
        if self.loop.now >= found.until:
            return False
        site = self.sites[found.replica.address[0]]
        here: Any = proxy.table.replicas[found.replica]
        if (start := here._client.granted[model]) != here.incarnation:
            self.wrong.append(f"{self.loop.now:.2f}: a lease on {model} is of {start}, before {here.incarnation}")
        found.enter()
        found.replica.in_flight += 1
        self.begun += 1
        arrives = self.loop.now + 0.5  # within the share of a lease that is reserved for the way
        for when in (self.loop.now, arrives):
            await asyncio.sleep(max(0.0, when - self.loop.now))
            if model not in site.resident and self.loop.now >= site.lost_until:
                self.wrong.append(f"{self.loop.now:.2f}: {model} is not at {found.replica.name}")
        await asyncio.sleep(self.chance.choice([0.01, 0.01, 0.5, 8.0]))
        found.replica.in_flight -= 1
        found.leave(self.loop.now)
        return True

    async def trouble(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 6))
            site = self.chance.choice(list(self.sites.values()))
            what = self.chance.choice(["well", "well", "hangs", "ended", "restart", "triton", "leaving"])
            if what == "triton":
                site.restart_triton()
            elif what == "restart" or site.how == "ended":
                site.start()
            elif what == "leaving":
                site.leave()
            else:
                site.how = what

    async def live(self, seconds: float) -> None:
        requests = []
        end = self.loop.now + seconds
        while self.loop.now < end:
            await asyncio.sleep(self.chance.choice([0.0, 0.05, 0.5, 3.0]))
            proxy, model = self.chance.choice(self.proxies), self.chance.choice(MODELS)
            requests += [self.run(self.request(proxy, model)) for _ in range(self.chance.choice([1, 1, 5]))]
        await asyncio.wait(requests)


@contextmanager
def simulated() -> Iterator[None]:
    """Run the proxies' lease code in worlds, with their clocks, wires and Triton servers."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (replica_leases, manager, table):
            patch.setattr(module, "monotonic", lambda: asyncio.get_running_loop().time())

        def site_of(replica: Replica) -> Site:
            loop: Any = asyncio.get_running_loop()
            return loop.world.sites[replica.address[0]]  # type: ignore[no-any-return]

        async def is_ready(self: replica_leases.ReplicaLeases, model: str) -> bool:
            await asyncio.sleep(0.001)
            return model in site_of(self.replica).resident

        granted = replica_leases.ReplicaLeases._granted

        def note_granted(self: Any, model: str, began: float, answer: lease.Granted) -> None:
            granted(self, model, began, answer)
            self._client.granted[model] = answer.incarnation

        patch.setattr(replica_leases.ReplicaLeases, "_granted", note_granted)
        patch.setattr(manager, "LeaseClient", lambda replica, *_: Wire(site_of(replica)))
        patch.setattr(replica_leases.ReplicaLeases, "_is_ready", is_ready)
        yield


def play(world: World, *scenes: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        await world.begin()
        for scene in scenes:
            await scene
        await world.end()

    asyncio.set_event_loop(world.loop)
    try:
        world.loop.run_until_complete(run())
    finally:
        world.loop.close()
        asyncio.set_event_loop(None)
