"""The log of events: one line for each load and each eviction, with its reason."""

import logging
from collections.abc import Mapping
from dataclasses import fields

from tidegate_service import json_lines

from ..core import (
    Allowed,
    Event,
    Evicted,
    Freed,
    Leaked,
    LoadBegan,
    Loaded,
    LoadFailed,
    ModelSpec,
    Overrun,
    PolicyFailed,
    Quarantined,
    Recycling,
    UnloadFailed,
)
from .counts import Counts
from .footprints import Footprints

_WORDS: dict[type, tuple[int, str]] = {
    LoadBegan: (logging.DEBUG, "%s is being loaded"),
    Loaded: (logging.INFO, "%s is loaded"),
    LoadFailed: (logging.WARNING, "%s could not be loaded"),
    Quarantined: (logging.ERROR, "%s is not loaded any more until it changes, or somebody asks for it"),
    Allowed: (logging.INFO, "%s may be loaded again"),
    Evicted: (logging.INFO, "%s is evicted"),
    UnloadFailed: (logging.ERROR, "%s could not be unloaded"),
    Freed: (logging.DEBUG, "the room of %s is free"),
    Leaked: (logging.WARNING, "memory did not come back, or came back late"),
    Overrun: (logging.ERROR, "more is loaded than there is room for"),
    PolicyFailed: (logging.ERROR, "the policy failed: the least recently used go instead"),
    Recycling: (logging.ERROR, "Triton is to be restarted: no new leases"),
}
"""How loud each event is, and how it is said; its fields are in the line, too."""
log = logging.getLogger("tidegate_eviction.events")


def configure(level: str) -> None:
    """Log as JSON lines, and not of each of uvicorn's two servers."""
    json_lines.configure(level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def tell(event: Event, counts: Counts, footprints: Footprints, specs: Mapping[str, ModelSpec]) -> None:
    """Log and count an event, and learn from it."""
    level, text = _WORDS[type(event)]
    said = {_camel(field.name): getattr(event, field.name) for field in fields(event)}
    name = getattr(event, "model", "")
    said |= {"event": _kebab(type(event).__name__)}
    log.log(level, text, *([name] if "%s" in text else []), extra={"said": said})
    match event:
        case Loaded():
            counts.loads.add(event.seconds)
            measured = {name: None, **event.measured}
            for each, size in measured.items():
                if (spec := specs.get(each)) is not None:
                    footprints.learn(each, spec.stamp, size, event.seconds if each == name else 0.0)
        case LoadFailed():
            counts.load_failures += 1
        case Evicted():
            counts.evictions[event.reason] += 1
        case UnloadFailed():
            counts.unload_failures += 1
        case Freed():
            counts.frees.add(event.seconds)
        case Overrun():
            counts.overruns += 1
        case Recycling():
            counts.recycles += 1


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _kebab(name: str) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in name).lstrip("-")
