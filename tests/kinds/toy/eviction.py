"""A toy kind of inference server for the eviction policy: its models are loaded into a set."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidegate_contracts.eviction import EvictionSettings
from tidegate_eviction.core.messages import Command, Load, Recycle, ServerInventory, Unload
from tidegate_eviction.server import Connection, MemoryReading, ModelFiles, ModelRepository, ServerEvents


@dataclass
class ToyRepository:
    """Models and their sizes."""

    root: str
    sizes: dict[str, int]
    is_remote: bool = False

    def check(self) -> None:
        """It is always there."""

    def look(self, model: str, _wanted: Iterable[int] = ()) -> ModelFiles | None:
        size = self.sizes.get(model)
        return None if size is None else ModelFiles((1,), stamp="the only content", estimate_bytes=size)

    def contents(self, _model: str, _wanted: Iterable[int] = ()) -> None:
        """There are no files that could be staged."""


@dataclass
class ToyDriver:
    """The server and its driver in one."""

    sizes: dict[str, int]
    connection: Connection
    events: ServerEvents
    is_up: bool = False
    loaded: set[str] = field(default_factory=set)
    highest_bytes: int = 0

    async def follow(self) -> None:
        self.is_up = True
        self.events.memory_read(self._reading())
        self.events.server_back(ServerInventory(resident=tuple(sorted(self.loaded))))
        while True:
            self.events.memory_read(self._reading())
            await asyncio.sleep(0.01)

    def carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            asyncio.get_running_loop().call_soon(self._do, command)

    async def close(self) -> None:
        """Nothing is under way."""

    def port(self, _model: str) -> None:
        """All models answer at the same port."""

    def _do(self, command: Command) -> None:
        match command:
            case Load(number=number, model=model):
                before = self._reading()
                self.loaded.add(model)
                self.highest_bytes = max(self.highest_bytes, self._reading().used_bytes or 0)
                self.events.load_ended(number, None, before.growth_to(self._reading()), (1,))
            case Unload(number=number, names=names):
                self.loaded.difference_update(names)
                self.events.unload_ended(number, None)
            case Recycle(reason=reason):
                self.connection.recycle.write_text(reason, "utf-8")

    def _reading(self) -> MemoryReading:
        return MemoryReading("toy", sum(self.sizes[name] for name in self.loaded), 1000, "the only start")


@dataclass
class ToyKind:
    """What is to be registered in `KINDS`."""

    sizes: dict[str, int]
    memory_sources: tuple[str, ...] = ("toy",)
    reserved_models: frozenset[str] = frozenset({"toy_reader"})
    drivers: list[ToyDriver] = field(default_factory=list)

    def repository(self, root: str, staged: bool = False) -> ToyRepository:  # noqa: ARG002
        return ToyRepository(root, self.sizes)

    def driver(
        self,
        connection: Connection,
        _repository: Callable[[], ModelRepository],
        events: ServerEvents,
        _settings: Callable[[], EvictionSettings],
    ) -> ToyDriver:
        self.drivers.append(ToyDriver(self.sizes, connection, events))
        return self.drivers[-1]

    def problem(self, _settings: EvictionSettings) -> str:
        return ""
