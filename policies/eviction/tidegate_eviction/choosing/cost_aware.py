"""Keep what is dear to load again, small, and often used.

Whoever is worth least goes first, where a model is worth

    load seconds / bytes / max(mean time between uses, time since its last use)

The last term is how often it is used, as far as anybody can tell, so that this is what its eviction is expected to cost
in seconds of loading, per byte of room and second of time. It ages by itself: what is used no more falls behind. Kin of
greedy-dual-size-frequency (Cao and Irani, USITS 1997; Cherkasova, HP Labs 1998) for cost and size, and of hyperbolic
caching (Blankstein, Sen and Freedman, ATC 2017), which ages so without greedy-dual's inflation.
"""

import heapq
from collections.abc import Iterator, Sequence

from .policy import Candidate, Policy, take

_TINY = 1e-9
"""Nothing takes no time at all."""


def worth(candidate: Candidate, now: float) -> float:
    """Return what it is worth to keep: expected seconds of loading per byte and second."""
    size = candidate.bytes
    for part in candidate.shared:
        size += part.bytes // part.users
    since = now - candidate.last_use
    if since < candidate.gap_seconds:
        since = candidate.gap_seconds
    return candidate.load_seconds / ((size or 1) * (since if since > _TINY else _TINY))


def choose(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
    """Take those worth least until there is enough."""
    heap = [(worth(candidate, now), candidate.name, place) for place, candidate in enumerate(candidates)]
    heapq.heapify(heap)

    def cheapest() -> Iterator[Candidate]:
        while heap:
            yield candidates[heapq.heappop(heap)[2]]

    return take(cheapest(), needed_bytes)


COST_AWARE = Policy(
    name="cost-aware",
    sentence="Those go first that are cheap to load again, large and seldom used, of those idle for their idle limit.",
    choose=choose,
)
