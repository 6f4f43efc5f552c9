"""Traces that several tests use."""

from array import array
from collections.abc import Sequence
from functools import cache

from tidegate_eviction.simulate.trace import Trace, TracedModel
from tidegate_eviction.simulate.zoo import Zoo, generate


@cache
def day(seed: int = 2) -> Trace:
    """Return a synthetic day of 20 models whose requests take seconds, so that some are in use when room is wanted."""
    return generate(Zoo(models=20, requests=8000, spread=0.7, warm_ms=3000, seed=seed))


def trace_of(requests: Sequence[tuple[float, int]], *models: tuple[int, float, float]) -> Trace:
    """Return a trace of requests (seconds, model) to models (bytes, load seconds, warm seconds)."""
    return _trace(requests, tuple(TracedModel(f"m{number}", *model) for number, model in enumerate(models)))


def only(trace: Trace, numbers: Sequence[int]) -> Trace:
    """Return a trace with only these requests, by their position."""
    return _trace([(trace.seconds[each], trace.which[each]) for each in numbers], trace.models)


def _trace(requests: Sequence[tuple[float, int]], models: tuple[TracedModel, ...]) -> Trace:
    return Trace(models, array("d", (time for time, _ in requests)), array("l", (which for _, which in requests)))
