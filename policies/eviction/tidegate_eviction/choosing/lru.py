"""Least recently used first; and the same with an idle limit, the rule of the reference architecture."""

import heapq
from collections.abc import Iterator, Sequence

from .policy import Candidate, Policy, take


def least_recently_used(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield them, the longest unused first. The first one takes linear time, each further one logarithmic."""
    heap = [(candidate.last_use, candidate.name, place) for place, candidate in enumerate(candidates)]
    heapq.heapify(heap)
    while heap:
        yield candidates[heapq.heappop(heap)[2]]


def choose(candidates: Sequence[Candidate], needed_bytes: int, _now: float) -> list[Candidate]:
    """Take the least recently used ones until there is enough."""
    return take(least_recently_used(candidates), needed_bytes)


LRU = Policy(
    name="lru",
    sentence="The least recently used go first, as soon as nobody holds a lease on them.",
    choose=choose,
    idle_limits=False,
)
LRU_IDLE = Policy(
    name="lru-idle",
    sentence="The least recently used go first, of those that have been idle for their idle limit.",
    choose=choose,
)
