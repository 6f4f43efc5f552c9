"""Traces as the simulator reads them, made of recorded calls and of what the policies measured of their models."""

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
"""When calls were, in seconds, in any order."""
_NAMED = 5  # Models of a kind that are named in a message.


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a model: its bytes (0: nothing), what a load takes (None: nothing), and a call without one."""

    footprint_bytes: int = 0
    load_seconds: float | None = None
    warm_seconds: float = 0.0


@dataclass
class Recording:
    """Traffic that was seen: calls by server and model, what is known of models, by name, and what was not seen."""

    calls: Mapping[tuple[str, str], Calls]
    measured: Mapping[str, Measured]
    busy: int = 0  # Calls that were told to come again: those that did are there once more.
    lost: list[str] = field(default_factory=list)  # In words, each the end of a sentence.
    source: str = ""  # A sentence about where it came from.


def no_calls(where: str) -> CommandError:
    """Return the error for a recording with nothing in it."""
    return CommandError(f"There is no call of a model in what {where}: nothing was written.")


def trace_of(recording: Recording) -> tuple[Trace, list[str]]:
    """Return the trace, and in words what is not in it as it was. Raises CommandError where nothing would be in it.

    A model that nobody measured is left out; a load that nobody measured is estimated by size. Models that two servers
    have by one name are called `server/model`.
    """
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
            f"What models take is not known ({listed(sorted(left), _NAMED)}): nothing was written. Eviction policies "
            "measure it, of pools that load on demand: have Prometheus scrape their admin port, or give their logs too."
        )
    models = _with_loads(known, notes)
    if recording.busy:
        notes.append(f"{count_of(recording.busy, 'call')} told to come again: those that did are in it twice")
    requests = heapq.merge(
        *(zip(sorted(called[each.name][1]), repeat(place)) for place, each in enumerate(models) if each.name in called)
    )
    trace = Trace(models)
    for seconds, place in requests:
        trace.seconds.append(seconds)
        trace.which.append(place)
    return trace, notes


def _with_loads(known: Mapping[str, Measured], notes: list[str]) -> tuple[TracedModel, ...]:
    """Return the models by name; what a load takes that was never measured goes by those that were, byte for byte."""
    rates = [each.load_seconds / each.footprint_bytes for each in known.values() if each.load_seconds is not None]
    if not rates:
        raise CommandError(
            "What loads take is not known of any model: nothing was written. Eviction policies measure it; those that "
            "Prometheus scrapes have to be of this version (tidegate_eviction_model_load_seconds)."
        )
    if guessed := sorted(name for name, each in known.items() if each.load_seconds is None):
        notes.append(f"what loading takes of {listed(guessed, _NAMED)}: never measured, and estimated by size")
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
