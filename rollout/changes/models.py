"""Which models a stack's objects serve, where, and how they come into memory: read from the proxy's routing table."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate_contracts import eviction_process, proxy_process

from .workloads import at, items, number, text

Pool = tuple[str, str]
"""Server and pool."""


@dataclass(frozen=True, order=True)
class Model:
    """One model, as far as it matters to whoever waits for it."""

    name: str
    pinned: bool = False
    footprint: int | None = None
    """Bytes, where they are declared."""


@dataclass(frozen=True)
class Serving:
    """What is served."""

    models: Mapping[Pool, tuple[Model, ...]] = field(default_factory=dict)
    loading: Mapping[Pool, str] = field(default_factory=dict)
    """`preload` or `on-demand`."""
    wait_seconds: Mapping[str, int] = field(default_factory=dict)
    """How long a caller waits for a load, by the name of the ConfigMap with the pool's eviction settings."""

    def places(self) -> dict[str, Pool]:
        """Return where each model is served."""
        return {model.name: pool for pool, models in self.models.items() for model in models}


def serving(objects: Iterable[Mapping[str, Any]]) -> Serving:
    """Return what a stack's objects serve; nothing where there is no routing table that can be read."""
    models: dict[Pool, list[Model]] = {}
    loading: dict[Pool, str] = {}
    waits: dict[str, int] = {}
    for item in objects:
        if item.get("kind") != "ConfigMap":
            continue
        table = _json(at(item, "data", proxy_process.ROUTING_FILE))
        for server in items(table, "servers"):
            for pool in items(server, "pools"):
                loading[text(server, "name"), text(pool, "name")] = text(pool, "loading")
        for model in items(table, "models"):
            place = text(model, "server"), text(model, "pool")
            footprint = number(model, "footprintBytes", default=0) or None
            models.setdefault(place, []).append(Model(text(model, "name"), model.get("pinned") is True, footprint))
        settings = _json(at(item, "data", eviction_process.SETTINGS_FILE))
        if settings is not None:
            waits[text(item, "metadata", "name")] = number(settings, "waitSeconds", default=0)
    ordered = {place: tuple(sorted(found, key=lambda model: model.name)) for place, found in models.items()}
    return Serving(ordered, loading, waits)


def _json(file: Any) -> Any:
    try:
        return json.loads(file) if isinstance(file, str) else None
    except (ValueError, RecursionError):
        return None
