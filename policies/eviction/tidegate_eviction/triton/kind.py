"""Triton, as a kind of inference server."""

from collections.abc import Callable
from pathlib import Path

from tidegate_contracts import triton
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.triton import MEMORY_MODEL

from ..server import Connection, ModelRepository, ServerEvents
from .control import TritonControl
from .driver import TritonDriver
from .memory import MemoryReader, MemorySource
from .repository import TritonRepository

ADDRESS = f"127.0.0.1:{triton.GRPC_PORT}"
METRICS_URL = f"http://127.0.0.1:{triton.METRICS_PORT}{triton.METRICS_PATH}"


class TritonKind:
    """Triton in explicit model control mode, with its control API restricted to the policy."""

    memory_sources: tuple[str, ...] = tuple(MemorySource)
    reserved_models: frozenset[str] = frozenset({MEMORY_MODEL})

    def repository(self, root: str, staged: bool = False) -> TritonRepository:
        """Return the model repository at a folder, or in object storage."""
        return TritonRepository(root, staged)

    def driver(
        self,
        connection: Connection,
        repository: Callable[[], ModelRepository],
        events: ServerEvents,
        settings: Callable[[], EvictionSettings],  # noqa: ARG002
    ) -> TritonDriver:
        """Return the driver of the Triton at the connection's gRPC address."""
        tls_root = (connection.tls_root or Path(triton.TLS_ROOT)) if connection.tls else None
        control = TritonControl(connection.address or ADDRESS, connection.secret, tls_root)
        metrics_url = METRICS_URL if connection.metrics_url is None else connection.metrics_url
        memory = MemoryReader(control, metrics_url or None)

        def override(model: str, versions: tuple[int, ...]) -> str | None:
            found = repository()
            assert isinstance(found, TritonRepository)
            return found.override(model, versions)

        return TritonDriver(control, memory, override, connection.recycle, events)

    def problem(self, settings: EvictionSettings) -> str:  # noqa: ARG002
        """Return nothing: what it needs, all settings have."""
        return ""
