"""A trace played for real, but for its clock: the proxies' own lease code, and the container's own service beside each
server. Only messages, which take no time, and what servers do are simulated."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import lease, routing
from tidegate_contracts.eviction import EvictionSettings, ManagedModel
from tidegate_eviction.core.messages import Command, Load, ServerInventory, Unload
from tidegate_eviction.serving.footprints import Footprints, Measurements
from tidegate_eviction.serving.service import EvictionService
from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Trace, TracedModel
from tidegate_eviction.triton.memory import MemoryReading
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_proxy.residency.leases import Lease
from tidegate_proxy.residency.manager import LeaseManager
from tidegate_proxy.telemetry.meter import Meter
from tidegate_proxy.upstream.replica import Replica

from tests.proxy.residency.world import World, simulated

Answered = dict[int, float | None]
"""By the request's position in the trace: how many seconds it waited; None if it was told to come again."""


class AtOnce(Executor):
    """Does what it is told on the spot: threads know no simulated time."""

    def submit(self, what: Any, /, *arguments: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(what(*arguments, **more))
        return done


class Server:
    """A server that loads as a trace says, and the policy's service beside it; a world takes it for a site of its."""

    how, starts = "well", 1
    is_up = True

    def __init__(self, world: "Served", trace: Trace, setting: SimulationSetting, known: bool) -> None:
        assert setting.wait_seconds is not None
        self.world = world
        self._models = {model.name: model for model in trace.models}
        self._used_bytes = 0
        models = tuple(ManagedModel(name=each.name, footprint_bytes=each.footprint_bytes) for each in trace.models)
        settings = EvictionSettings(
            policy=setting.policy.name, repository="s3://elsewhere", capacity_bytes=setting.capacity_bytes,
            idle_seconds=int(setting.idle_seconds), lease_seconds=int(setting.lease_seconds),
            wait_seconds=int(setting.wait_seconds), models=models,
        )  # fmt: skip
        learned = Footprints(Path("/nowhere"))
        if known:
            learned.models = {
                each.name: Measurements(stamp="", bytes=[each.footprint_bytes], load_seconds=each.load_seconds)
                for each in trace.models
            }
        self.service = EvictionService(settings, learned, "served", chance=lambda: 0.0)
        self.service._look_threads = AtOnce()  # type: ignore[assignment]
        self.service.driver = self  # type: ignore[assignment]

    async def start(self) -> None:
        await self.service.look()
        self.service.memory_read(MemoryReading(used_bytes=0))
        self.service.server_back(ServerInventory())

    def carry_out(self, commands: Iterable[Command]) -> None:
        loop = self.world.loop
        for command in commands:
            assert isinstance(command, Load | Unload)
            model = self._models[command.model]
            if isinstance(command, Load):
                loop.call_later(model.load_seconds, self.loaded, command.number, model.footprint_bytes)
            else:
                loop.call_soon(self.unloaded, command.number, model.footprint_bytes)

    def loaded(self, number: int, size: int) -> None:
        self._used_bytes += size
        self.service.load_ended(number, None, size, (1,))
        self.service.memory_read(MemoryReading(used_bytes=self._used_bytes))

    def unloaded(self, number: int, size: int) -> None:
        self._used_bytes -= size
        self.service.unload_ended(number, None)
        self.service.memory_read(MemoryReading(used_bytes=self._used_bytes))

    def port(self, _model: str) -> None:
        """Models have no ports of their own."""

    async def acquire(self, message: lease.Acquire) -> lease.Answer | None:
        return await self.service.acquire(message, lambda: asyncio.ensure_future(asyncio.sleep(1e9)))

    async def renew(self, message: lease.Renew) -> lease.Renewed:
        return self.service.renew(message)

    async def release(self, message: lease.Release) -> None:
        self.service.release(message)


class Served(World):
    """The proxies and servers of one setting; `known`: loads were measured before."""

    def __init__(self, trace: Trace, setting: SimulationSetting, *, known: bool = False) -> None:
        super().__init__(0, 0, setting.holders, 0)
        self.trace, self.setting, self.known = trace, setting, known
        self.begins = self.loop.now
        self.answered: Answered = {}
        self.hosts = [f"10.0.0.{each}" for each in range(setting.replicas)]

    @property
    def names(self) -> list[str]:
        return [f"{host}:8000" for host in self.hosts]

    def delay(self) -> float:
        return 0.0

    async def play(self) -> None:
        self.sites = {host: Server(self, self.trace, self.setting, self.known) for host in self.hosts}  # type: ignore[misc]
        for site in self.sites.values():
            await site.start()  # type: ignore[func-returns-value, misc]
        told = routing.Pool(name="p", host="h", http_port=8000, grpc_port=1, loading="on-demand", lease_port=1)
        for number in range(self.setting.holders):
            proxy = LeaseManager("s", told, f"proxy-{number}", Meter(), 1.0, 10_000)
            proxy.follow([Replica(2, (host, 8000)) for host in self.hosts])
            self.proxies.append(proxy)
            self.loop.call_at(self.begins + (number + 1) / (self.setting.holders + 1), proxy.start)
        requests = []
        for position, (seconds, which) in enumerate(self.trace.requests()):
            await asyncio.sleep(self.begins + seconds - self.loop.now)
            proxy = self.proxies[position % len(self.proxies)]
            requests.append(self.run(self.play_one(position, proxy, self.trace.models[which])))
        await asyncio.wait(requests)
        await asyncio.gather(*(proxy.leave() for proxy in self.proxies))

    async def play_one(self, position: int, proxy: LeaseManager, model: TracedModel) -> None:
        asked = self.loop.now
        self.answered[position] = None
        try:
            held = proxy.find(model.name, asked) or await proxy.acquire(model.name)
        except Problem as problem:
            if problem.type is ProblemType.BUSY:
                return
            raise
        self.answered[position] = self.loop.now - asked
        await self.use(held, model)

    async def use(self, held: Lease, model: TracedModel) -> None:
        """Be a request under a lease."""
        held.enter()
        held.replica.in_flight += 1
        await asyncio.sleep(model.warm_seconds)
        held.replica.in_flight -= 1
        held.leave(self.loop.now)

    def live_through(self) -> None:
        """Play it all."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.play())
        finally:
            self.loop.close()
            asyncio.set_event_loop(None)
        assert not self.wrong, self.wrong[:3]


@contextmanager
def in_simulated_time() -> Iterator[None]:
    with simulated(), pytest.MonkeyPatch.context() as patch:
        now = "tidegate_eviction.serving.service.monotonic"
        patch.setattr(now, lambda: asyncio.get_running_loop().time())
        yield


def served(trace: Trace, setting: SimulationSetting) -> tuple[Answered, list[str]]:
    """Return each request's answer, and the names of the replicas."""
    with in_simulated_time():
        world = Served(trace, setting)
        world.live_through()
        return world.answered, world.names
