"""What the policy and a driver of its inference server say to each other, whatever kind of server that is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate_contracts.eviction import EvictionSettings

from .core.messages import Command, ServerInventory
from .staging.sources import Contents

NO_SOURCE = "none"


class RepositoryError(Exception):
    """Says what is wrong with a model's files."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One reading of the bytes that a server uses."""

    source: str = NO_SOURCE
    """Where it comes from; `NO_SOURCE`: there are no readings, and an unload counts as soon as the server says so."""
    used_bytes: int | None = None
    total_bytes: int | None = None
    server: str = ""  # Which start of the server it is of; empty where that is not known.

    def growth_to(self, after: "MemoryReading") -> int | None:
        """Return by how many bytes memory grew; None where the two readings cannot be compared."""
        if self.used_bytes is None or after.used_bytes is None:
            return None
        if (self.source, self.server) != (after.source, after.server):
            return None
        return max(0, after.used_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as it lies in the repository."""

    versions: tuple[int, ...] = ()  # Those that a load loads, and that are there.
    stamp: str = ""  # Fingerprint of the content to load; it changes with the content, even to older files.
    parts: tuple[str, ...] = ()
    estimate_bytes: int | None = None  # What it may take in memory, without its parts; None where nothing tells.
    problem: str = ""  # Why no load of it can succeed, where its files show that.


class ModelRepository(Protocol):
    """Where the models of a server lie; it is only read."""

    root: str
    is_remote: bool  # Whether it is object storage, of which nothing is known before a model is loaded.

    def check(self) -> None:
        """Raise OSError when the repository itself cannot be read."""

    def look(self, model: str, wanted: Iterable[int] = ()) -> ModelFiles | None:
        """Return a model as it lies there now, None where it does not; raises RepositoryError and OSError.

        `wanted` are the versions to load; without them its own configuration chooses. Blocks while it reads.
        """

    def contents(self, model: str, wanted: Iterable[int] = ()) -> Contents | None:
        """Return what such a load reads, with the stamp that `look` says, to be staged; raises as `look` does."""


class ServerEvents(Protocol):
    """What a driver reports, and asks."""

    def load_ended(self, number: int, error: str | None, measured_bytes: int | None, versions: tuple[int, ...]) -> None:
        """A load has ended: with an error, or with what memory grew by and the versions that are loaded."""

    def unload_ended(self, number: int, error: str | None) -> None:
        """An unload has ended: nothing of what it named is loaded, or why something is."""

    def memory_read(self, reading: MemoryReading, why: str = "") -> None:
        """Memory was read, or cannot be read any more, and why; a later reading says that it can again."""

    def server_lost(self, why: str) -> None:
        """The server has ended, and with it all that was under way."""

    def server_back(self, found: ServerInventory) -> None:
        """The server is there, and has this."""

    def resident(self) -> frozenset[str]:
        """Return the models that the policy takes for loaded."""

    def vanished(self, models: frozenset[str]) -> None:
        """These models, of `resident`, are not loaded although no unload was ordered."""

    def is_busy(self) -> bool:
        """Tell whether readings of memory are wanted often."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a driver reaches its server; what is None is as the kind of server has it by default."""

    secret: str  # Which the server asks for before it loads and unloads.
    recycle: Path  # The file that asks for a restart of the server.
    tls: bool = False
    address: str | None = None
    metrics_url: str | None = None
    tls_root: Path | None = None  # Folder with the server's certificate and its authority's.


class ServerDriver(Protocol):
    """Holds the connection to one server, carries the core's commands out, and reports what became of them."""

    is_up: bool  # Whether there is a connection, and it is known what the server has.

    async def follow(self) -> None:
        """Hold the connection for ever: report what the server has when it is there, its memory, and its end."""

    def carry_out(self, commands: Iterable[Command]) -> None:
        """Begin to carry commands out, in this order."""

    async def close(self) -> None:
        """Close the connection; the server goes on with what it does."""

    def port(self, model: str) -> int | None:
        """Return where a loaded model answers: None where its server does, 0 where it does no longer."""


class ServerKind(Protocol):
    """One kind of inference server."""

    memory_sources: tuple[str, ...]
    reserved_models: frozenset[str]  # Names of models that its driver needs for itself.

    def repository(self, root: str, staged: bool = False) -> ModelRepository:
        """Return the repository at a folder or URL; `staged`: of either the files are to be read here."""

    def driver(
        self,
        connection: Connection,
        repository: Callable[[], ModelRepository],
        events: ServerEvents,
        settings: Callable[[], EvictionSettings],
    ) -> ServerDriver:
        """Return a driver; `settings` returns the current ones, and `repository` the one that they name."""

    def problem(self, settings: EvictionSettings) -> str:
        """Return what settings of this kind lack, or nothing."""
