"""Policies that know the future, to hold those against that do not. They are heuristics: `bound` is what nobody beats.

Belady's rule evicts what is wanted again last (Belady, "A study of replacement algorithms for a virtual-storage
computer", IBM Systems Journal 1966). It is optimal where all models are of one size and load in one time, and far from
it where they are not; weighted, what goes first costs least to load again, per byte and second until it is.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence

from ..choosing.policy import Candidate, Policy, take
from .trace import Trace

_TINY = 1e-9


def belady(trace: Trace) -> Policy:
    """Return Belady's rule, knowing this trace."""
    next_use = _future(trace)
    return _policy("Belady", lambda candidate, now: -next_use(candidate.name, now))


def weighted_belady(trace: Trace) -> Policy:
    """Return Belady's rule, weighted by what loads take, and by size."""
    next_use = _future(trace)
    load_seconds = {model.name: model.load_seconds for model in trace.models}

    def worth(candidate: Candidate, now: float) -> float:
        until = max(_TINY, next_use(candidate.name, now) - now)
        return load_seconds[candidate.name] / max(1, candidate.bytes) / until

    return _policy("Belady, weighted", worth)


def _policy(name: str, worth: Callable[[Candidate, float], float]) -> Policy:
    def choose(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
        return take(sorted(candidates, key=lambda candidate: worth(candidate, now)), needed_bytes)

    return Policy(name, "It knows every request to come.", choose, idle_limits=False)


def _future(trace: Trace) -> Callable[[str, float], float]:
    """Return a function that says when a model is asked for next, after a moment."""
    uses: dict[str, array[float]] = {model.name: array("d") for model in trace.models}
    for seconds, which in trace.requests():
        uses[trace.models[which].name].append(seconds)

    def next_use(name: str, now: float) -> float:
        of_it = uses[name]
        place = bisect_right(of_it, now)
        return of_it[place] if place < len(of_it) else math.inf

    return next_use
