"""A policy as a page or a scrape finds it."""

from typing import Any

from tidegate_contracts.lease import Listed, Listing
from tidegate_eviction.serving.counts import Counts
from tidegate_eviction.serving.view import View
from tidegate_eviction.triton.memory import Reading, Source

MIB = 1 << 20


def listed(model: str, state: Any = "resident", **more: Any) -> Listed:
    return Listed(model=model, state=state, **more)


def view(*models: Listed, **more: Any) -> View:
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
        "counts": Counts(),
        "reading": Reading(Source.NVML, 5, 9),
        "triton_is_up": True,
        "leases": 2,
        "settings_generation": 1,
        "settings_failures": 0,
        "settings_error": "",
    }
    return View(**(said | more))
