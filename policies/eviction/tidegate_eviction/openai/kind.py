"""Servers of OpenAI's API that load on demand: models of vLLM that share a slice, and sleep by turns."""

from collections.abc import Callable
from pathlib import Path

from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.eviction_process import ENGINES_PROGRAM

from ..server import Connection, ModelRepository, ServerEvents
from ..serving.files import program, write_whole
from .control import EngineControl
from .driver import SleepDriver
from .repository import WeightsRepository


class OpenaiKind:
    """vLLM in sleep mode, one process a model."""

    memory_sources: tuple[str, ...] = ("nvml", "process")
    reserved_models: frozenset[str] = frozenset()

    def repository(self, root: str, staged: bool = False) -> WeightsRepository:  # noqa: ARG002
        """Return the folder of weights."""
        return WeightsRepository(root)

    def driver(
        self,
        connection: Connection,
        repository: Callable[[], ModelRepository],
        events: ServerEvents,
        settings: Callable[[], EvictionSettings],
    ) -> SleepDriver:
        """Return a driver, and write the program that starts processes to where the engine's container reads it."""
        write_whole(connection.recycle.with_name(Path(ENGINES_PROGRAM).name), program("openai/engines.py"))
        return SleepDriver(EngineControl(connection.address, connection.secret), repository, events, settings)

    def problem(self, settings: EvictionSettings) -> str:
        """Return what settings lack: how models sleep, and of each its command and its share of the slice."""
        if settings.sleep is None:
            return "sleep: it is missing: settings of kind openai say there how models sleep"
        lacking = [each.name for each in settings.models if not (each.command and each.footprint_bytes)]
        return f"models: {', '.join(lacking)} has no command, or no footprintBytes" if lacking else ""
