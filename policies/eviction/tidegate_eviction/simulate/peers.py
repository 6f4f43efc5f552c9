"""libCacheSim's caches over the same requests, for orientation.

They are caches, and no model servers: a load takes no time, what is in use may go, nobody is told busy, and some (its
GDSF) need not keep what was asked for. Their GDSF knows sizes, but no costs. What each missed is charged as a load.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .errors import MissingLibraryError
from .outcome import Outcome
from .trace import Trace

CACHES: Final[Mapping[str, str]] = {"LRU": "LRU", "GDSF": "GDSF", "SIEVE": "Sieve", "Belady": "Belady"}
"""The name of each for people, and in the library."""
NEVER: Final = 2**62


def peers(trace: Trace, capacity_bytes: int) -> Iterator[tuple[str, Outcome]]:
    """Yield each cache and what came of it. MissingLibraryError if there is no libCacheSim."""
    try:
        import libcachesim
    except ImportError:
        raise MissingLibraryError(
            "libCacheSim's caches, for libcachesim is not installed (it exists for Linux on x86-64 alone)"
        ) from None
    next_use = _next_uses(trace)
    for name, called in CACHES.items():
        yield name, _run(trace, getattr(libcachesim, called)(capacity_bytes), libcachesim.Request, next_use)


def _run(trace: Trace, cache: Any, request: Any, next_use: list[int]) -> Outcome:
    outcome = Outcome(requests=len(trace))
    for position, (seconds, which) in enumerate(trace.requests()):
        model = trace.models[which]
        if model.footprint_bytes > cache.cache_size:
            outcome.too_large += 1
            continue
        asked = request(
            obj_id=which, obj_size=model.footprint_bytes, clock_time=int(seconds), next_access_vtime=next_use[position]
        )
        hit = cache.get(asked)
        if not hit:
            outcome.loaded(seconds, model.load_seconds)
        outcome.started(position, seconds, 0.0, hit=hit)
    return outcome


def _next_uses(trace: Trace) -> list[int]:
    """Return, for each request, the position of the next one for its model, as Belady wants it."""
    found = [NEVER] * len(trace)
    seen: dict[int, int] = {}
    for position in range(len(trace) - 1, -1, -1):
        which = trace.which[position]
        found[position] = seen.get(which, NEVER)
        seen[which] = position
    return found
