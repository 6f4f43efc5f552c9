"""A trace through the proxies' real lease code and each policy's real core, with a simulated clock. Only messages,
which take no time, and servers are simulated."""

import asyncio

from tidegate_contracts import routing
from tidegate_eviction.core.messages import Command, Load, ModelSpec, PoolSettings, ServerInventory
from tidegate_eviction.core.residency import Residency
from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Trace, TracedModel
from tidegate_proxy.problems import Problem, ProblemType
from tidegate_proxy.residency.leases import Lease
from tidegate_proxy.residency.manager import LeaseManager
from tidegate_proxy.settings import Tunables
from tidegate_proxy.telemetry.meter import Meter
from tidegate_proxy.upstream.replica import Replica

from tests.proxy.residency.world import Site, World, simulated

Answered = dict[int, float | None]
"""By the request's position in the trace: its wait in seconds. None: it was refused as busy."""


class Server(Site):
    world: "Served"

    def start(self) -> None:
        world, setting, now = self.world, self.world.setting, self.world.loop.now
        self.starts, self._used_bytes = 1, 0
        self._models = {model.name: model for model in world.trace.models}
        rules = PoolSettings(
            setting.capacity_bytes, setting.policy, setting.idle_seconds, setting.lease_seconds, setting.wait_seconds
        )
        specs = {model.name: ModelSpec(model.name, model.footprint_bytes) for model in world.trace.models}
        if world.known:
            specs = {
                each.name: ModelSpec(
                    each.name, estimate_bytes=each.footprint_bytes, estimate_from="measured",
                    load_seconds=each.load_seconds,
                )
                for each in world.trace.models
            }  # fmt: skip
        self.core = Residency(rules, "served", now)
        self._do(self.core.configure(rules, specs, now))
        self._do(self.core.recover(ServerInventory(), now))
        self._do(self.core.memory(0, now))

    async def _carry_out(self, core: Residency, command: Command) -> None:
        model, loop = self._models[command.model], self.world.loop  # type: ignore[union-attr]
        if isinstance(command, Load):
            await asyncio.sleep(model.load_seconds)
            self._used_bytes += model.footprint_bytes
            self._do(core.load_ended(command.number, loop.now, None, model.footprint_bytes, (1,)))
        else:
            self._used_bytes -= model.footprint_bytes
            self._do(core.unload_ended(command.number, loop.now))  # type: ignore[union-attr]
        self._do(core.memory(self._used_bytes, loop.now))


class Served(World):
    """The proxies and servers of one setting. `known`: loads were measured before."""

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
        self.sites = {host: Server(self, 0) for host in self.hosts}
        pool = routing.Pool(name="p", host="h", http_port=8000, grpc_port=1, loading="on-demand", lease_port=1)
        for number in range(self.setting.holders):
            proxy = LeaseManager("s", pool, f"proxy-{number}", Meter(), 1.0, 10_000, Tunables())
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
        began = self.loop.now
        self.answered[position] = None
        try:
            held = proxy.find(model.name, began) or await proxy.acquire(model.name)
        except Problem as problem:
            if problem.type is ProblemType.BUSY:
                return
            raise
        self.answered[position] = self.loop.now - began
        await self.use(held, model)

    async def use(self, held: Lease, model: TracedModel) -> None:
        held.enter()
        held.replica.in_flight += 1
        await asyncio.sleep(model.warm_seconds)
        held.replica.in_flight -= 1
        held.leave(self.loop.now)

    def live_through(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.play())
        finally:
            self.loop.close()
            asyncio.set_event_loop(None)
        assert not self.wrong, self.wrong[:3]


def served(trace: Trace, setting: SimulationSetting) -> tuple[Answered, list[str]]:
    with simulated():
        world = Served(trace, setting)
        world.live_through()
        return world.answered, world.names
