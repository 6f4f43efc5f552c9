"""Traces as the simulator reads them, made of requests and of what the policies measured of their models."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate_eviction.simulate.trace import Trace, TracedModel


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one model; what is 0 was not. A trace without a footprint cannot be simulated."""

    footprint_bytes: int = 0
    load_seconds: float = 0.0
    warm_seconds: float = 0.0  # Of a call that finds its model resident.


def trace_of(requests: Iterable[tuple[float, str]], measured: Mapping[str, Measured]) -> Trace:
    """Return the trace of requests (seconds, model) in any order; models without a footprint are left out of it."""
    known = sorted(name for name, each in measured.items() if each.footprint_bytes)
    places = {name: place for place, name in enumerate(known)}
    kept = sorted((seconds, places[name]) for seconds, name in requests if name in places)
    models = tuple(
        TracedModel(name, each.footprint_bytes, each.load_seconds, each.warm_seconds)
        for name, each in ((name, measured[name]) for name in known)
    )
    return Trace(models, array("d", (seconds for seconds, _ in kept)), array("l", (place for _, place in kept)))
