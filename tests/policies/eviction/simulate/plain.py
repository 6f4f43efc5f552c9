"""Traces that several tests use, and a cache of models, simulated once more in the simplest way."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from tidegate_eviction.simulate.trace import Trace, TracedModel
from tidegate_eviction.simulate.zoo import Zoo, generate


@cache
def day(seed: int = 2) -> Trace:
    """Return a synthetic day of 20 models whose requests take seconds, so that some are in use when room is wanted."""
    return generate(Zoo(models=20, requests=8000, spread=0.7, warm_ms=3000, seed=seed))


def trace_of(requests: Sequence[tuple[float, int]], *models: tuple[int, float, float]) -> Trace:
    return _trace(requests, tuple(TracedModel(f"m{number}", *model) for number, model in enumerate(models)))


def only(trace: Trace, numbers: Sequence[int]) -> Trace:
    return _trace([(trace.seconds[each], trace.which[each]) for each in numbers], trace.models)


def _trace(requests: Sequence[tuple[float, int]], models: tuple[TracedModel, ...]) -> Trace:
    return Trace(models, array("d", (time for time, _ in requests)), array("l", (which for _, which in requests)))


@dataclass
class Plain:
    """What is known while it runs. Times are seconds."""

    now: float = 0.0
    resident: dict[int, None] = field(default_factory=dict)
    """In the order in which they were loaded, which decides between equals."""
    busy_until: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    """When each was last used: when that request came, or ended."""
    load_seconds: float = 0.0
    loads: int = 0
    busy: int = 0


Order = Callable[[Plain, int], float | tuple[float, str]]


def lru(plain: Plain, which: int) -> float:
    return plain.last[which]


def plainly(trace: Trace, capacity: float, order: Order, idle: float = 0.0, from_end: bool = False) -> Plain:
    """Simulate: loads take no time, a request occupies its model for `warm_seconds`, who finds no room is busy.

    Those lowest in the order go until there is enough room, but for those of them that need not, the last ones first.
    """
    plain = Plain()
    used = 0
    for plain.now, which in trace.requests():
        model = trace.models[which]
        if which not in plain.resident:
            needed = used + model.footprint_bytes - capacity
            if needed > 0:
                free = (each for each in plain.resident if plain.busy_until[each] <= plain.now)
                free = (each for each in free if plain.now - plain.last[each] >= idle)
                victims = []
                freed = 0
                for each in sorted(free, key=lambda each: order(plain, each)):
                    if freed >= needed:
                        break
                    victims.append(each)
                    freed += trace.models[each].footprint_bytes
                if freed < needed:
                    plain.busy += 1
                    continue
                for each in list(reversed(victims)):
                    if freed - trace.models[each].footprint_bytes >= needed:
                        victims.remove(each)
                        freed -= trace.models[each].footprint_bytes
                used -= freed
                for each in victims:
                    del plain.resident[each]
            plain.resident[which] = None
            used += model.footprint_bytes
            plain.load_seconds += model.load_seconds
            plain.loads += 1
        plain.busy_until[which] = max(plain.busy_until.get(which, 0.0), plain.now + model.warm_seconds)
        plain.last[which] = plain.busy_until[which] if from_end else plain.now
    return plain
