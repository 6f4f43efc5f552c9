"""The log of events: one line for each load and each eviction, with its reason."""

import logging
import re
from collections.abc import Mapping
from dataclasses import fields

from pydantic.alias_generators import to_camel
from tidegate_service import json_lines

from ..core import messages
from ..core.messages import ModelSpec
from .footprints import Footprints
from .metrics import Counts

_LINES: dict[type, tuple[int, str, str]] = {
    messages.LoadBegan: (logging.DEBUG, "%s is being loaded", ""),
    messages.Loaded: (logging.INFO, "%s is loaded", ""),
    messages.LoadFailed: (logging.WARNING, "%s could not be loaded", "load_failures"),
    messages.Quarantined: (logging.ERROR, "%s is not loaded any more until it changes, or is released by hand", ""),
    messages.Allowed: (logging.INFO, "%s may be loaded again", ""),
    messages.Evicted: (logging.INFO, "%s is evicted", ""),
    messages.UnloadFailed: (logging.ERROR, "%s could not be unloaded", "unload_failures"),
    messages.Freed: (logging.DEBUG, "the room of %s is free", ""),
    messages.Leaked: (logging.WARNING, "memory did not come back, or came back late", ""),
    messages.Overrun: (logging.ERROR, "more is loaded than there is room for", "overruns"),
    messages.PolicyFailed: (logging.ERROR, "the policy failed: the least recently used go instead", ""),
    messages.Recycling: (logging.ERROR, "the server is to be restarted: no new leases", "recycles"),
}
"""Level and text of each event's line, which has the event's fields, too; and which total counts it, if any."""
log = logging.getLogger("tidegate_eviction.events")


def configure(level: str) -> None:
    """Log as JSON lines, without those of uvicorn's two servers below warnings."""
    json_lines.configure(level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def tell(event: messages.Event, counts: Counts, footprints: Footprints, specs: Mapping[str, ModelSpec]) -> None:
    """Log and count an event, and remember what it tells of footprints."""
    level, text, counted = _LINES[type(event)]
    said = {to_camel(field.name): getattr(event, field.name) for field in fields(event)}
    name = getattr(event, "model", "")
    said["event"] = re.sub(r"(?<!^)(?=[A-Z])", "-", type(event).__name__).lower()
    log.log(level, text, *([name] if "%s" in text else []), extra={"said": said})
    match event:
        case messages.Loaded():
            counts.histograms["load_seconds"].observe(event.seconds)
            for each, size in {name: None, **event.measured}.items():
                if (spec := specs.get(each)) is not None:
                    footprints.learn(each, spec.stamp, size, event.seconds if each == name else 0.0)
        case messages.Evicted():
            counts.evictions.labels(event.reason).inc()
        case messages.Freed():
            counts.histograms["freeing_seconds"].observe(event.seconds)
        case _ if counted:
            counts.totals[counted].inc()
