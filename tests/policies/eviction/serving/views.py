"""A policy as a page or a scrape finds it."""

from typing import Any

from tidegate_contracts.lease import Listed, Listing
from tidegate_eviction.server import MemoryReading
from tidegate_eviction.serving.metrics import Snapshot
from tidegate_eviction.triton.memory import MemorySource

MIB = 1 << 20


def listed(model: str, state: Any = "resident", **more: Any) -> Listed:
    return Listed(model=model, state=state, **more)


def view(*models: Listed, **more: Any) -> Snapshot:
    resident = sum(each.footprint_bytes or 0 for each in models if each.state == "resident")
    listing = Listing(
        incarnation="x.0",
        policy="lru-idle",
        capacity_bytes=1000 * MIB,
        resident_bytes=resident,
        loading_bytes=0,
        freeing_bytes=0,
        leaked_bytes=more.pop("leaked", 0),
        free_bytes=1000 * MIB - resident,
        models=models,
    )
    said: dict[str, Any] = {
        "listing": listing,
        "reading": MemoryReading(MemorySource.NVML, 5, 9),
        "memory_sources": tuple(MemorySource),
        "leases": 2,
    }
    return Snapshot(**(said | more))
