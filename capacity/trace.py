"""Traces for the simulator, made from recorded calls and from the policies' measurements of models."""

import heapq
import statistics
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TypeAlias

from tidegate_eviction.simulate.trace import Trace, TracedModel

from stacks.command import CommandError
from stacks.problems import count_of, listed

Calls: TypeAlias = "array[float]"
"""Times of calls in seconds, in any order."""
_NAMED = 5  # Maximum number of models named in a message.


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a model: bytes (0: unknown), load seconds (None: unknown), seconds of a call without a load."""

    footprint_bytes: int = 0
    load_seconds: float | None = None
    warm_seconds: float = 0.0


@dataclass
class Recording:
    """Recorded traffic: calls by server and model, measurements by model, and losses."""

    calls: Mapping[tuple[str, str], Calls]
    measured: Mapping[str, Measured]
    busy: int = 0  # Calls that were refused as busy. Retries are recorded again.
    lost: list[str] = field(default_factory=list)  # Losses, each as the end of a sentence.
    source: str = ""  # A sentence about where it came from.


def no_calls(where: str) -> CommandError:
    """Return the error for an empty recording."""
    return CommandError(f"There is no call of a model in {where}. Nothing was written.")


def trace_of(recording: Recording) -> tuple[Trace, list[str]]:
    """Return the trace, and sentences about its losses, such as models without a measured size. Raises CommandError if
    it is empty. If two servers have a model of the same name, models are called `server/model`."""
    servers = Counter(model for _, model in recording.calls)
    called = {
        (f"{server}/{model}" if servers[model] > 1 else model): (model, calls)
        for (server, model), calls in recording.calls.items()
    }
    known = {name: each for name, each in recording.measured.items() if each.footprint_bytes and name not in servers}
    notes, left = list(recording.lost), []
    for name, (model, _) in called.items():
        if (each := recording.measured.get(model, Measured())).footprint_bytes:
            known[name] = each
        else:
            left.append(name)
    if left:
        number = count_of(sum(len(called[name][1]) for name in left), "call")
        notes.append(f"{number} of models that no eviction policy has measured: {listed(sorted(left), _NAMED)}")
    if len(left) == len(called):
        raise CommandError(
            f"The memory of {listed(sorted(left), _NAMED)} is unknown. Nothing was written. Eviction policies measure "
            "it for pools that load on demand: let Prometheus scrape their admin port, or add their logs."
        )
    models = _with_loads(known, notes)
    if recording.busy:
        notes.append(f"{count_of(recording.busy, 'call')} refused as busy. A retry counts as a second call")
    requests = heapq.merge(
        *(zip(sorted(called[each.name][1]), repeat(place)) for place, each in enumerate(models) if each.name in called)
    )
    trace = Trace(models)
    for seconds, place in requests:
        trace.seconds.append(seconds)
        trace.which.append(place)
    return trace, notes


def _with_loads(known: Mapping[str, Measured], notes: list[str]) -> tuple[TracedModel, ...]:
    """Return the models by name. A missing load time is estimated from the others, in proportion to the size."""
    rates = [each.load_seconds / each.footprint_bytes for each in known.values() if each.load_seconds is not None]
    if not rates:
        raise CommandError(
            "No load time of any model is known. Nothing was written. Eviction policies measure load times. Those that "
            "Prometheus scrapes must have this version (tidegate_eviction_model_load_seconds)."
        )
    if guessed := sorted(name for name, each in known.items() if each.load_seconds is None):
        notes.append(f"load times of {listed(guessed, _NAMED)}: never measured, so estimated by size")
    rate = statistics.median(rates)
    return tuple(
        TracedModel(
            name,
            each.footprint_bytes,
            rate * each.footprint_bytes if each.load_seconds is None else each.load_seconds,
            each.warm_seconds,
        )
        for name, each in sorted(known.items())
    )
