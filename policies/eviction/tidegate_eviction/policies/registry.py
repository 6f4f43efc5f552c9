"""The policies there are: those built in, and those that installed packages bring.

`cost-aware` evicts first what is worth least: load seconds / bytes / max(mean time between uses, time since its last
use). This is what its eviction is expected to cost in seconds of loading, per byte of room and second of time. It ages
by itself: what is used no more falls behind. docs/eviction.md names its kin.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Final

from .policy import Candidate, Policy, guarded, reason, take

GROUP: Final = "tidegate_eviction.policies"
"""Entry points of this group are `Policy` objects; the entry's name is the policy's."""
_LEAST_SECONDS = 1e-9  # Taken for shorter times since a use, which would divide by zero.


def least_recently_used(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield candidates, the longest unused first."""
    return _ascending([(candidate.last_use, candidate.name, candidate) for candidate in candidates])


def worth(candidate: Candidate, now: float) -> float:
    """Return what a model is worth: expected seconds of loading per byte and second."""
    size = candidate.bytes
    for part in candidate.shared:
        size += part.bytes // part.users
    since = now - candidate.last_use
    if since < candidate.gap_seconds:
        since = candidate.gap_seconds
    return candidate.load_seconds / ((size or 1) * (since if since > _LEAST_SECONDS else _LEAST_SECONDS))


def _ascending(heap: list[tuple[float, str, Candidate]]) -> Iterator[Candidate]:
    """Yield by number, then name, which is one candidate's. The first takes linear time, the others logarithmic."""
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[2]


def _choose_lru(candidates: Sequence[Candidate], needed_bytes: int, _now: float) -> list[Candidate]:
    return take(least_recently_used(candidates), needed_bytes)


def _choose_cheapest(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
    heap = [(worth(candidate, now), candidate.name, candidate) for candidate in candidates]
    return take(_ascending(heap), needed_bytes)


BUILT_IN: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        Policy(
            "break-even",
            "Like cost-aware, after an idle time of four loads, or earlier if that saves callers time. Loads models "
            "shortly before timers call them.",
            _choose_cheapest,
            breaks_even=True,
        ),
        Policy(
            "lru-idle",
            "The least recently used of those that have been idle for their idle limit.",
            _choose_lru,
        ),
        Policy(
            "cost-aware",
            "The cheapest to load again, the largest and the least used, of those that have been idle for their idle "
            "limit.",
            _choose_cheapest,
        ),
    )
}


def find(name: str) -> Policy:
    """Return a policy by its name; ValueError, in one sentence, if there is none or it cannot be used."""
    entries = list(metadata.entry_points(group=GROUP, name=name))
    if name in BUILT_IN:
        if entries:
            other = ", ".join(each.value for each in entries)
            raise ValueError(f'policy "{name}" is built in: {other} needs another name')
        return BUILT_IN[name]
    if not entries:
        raise ValueError(
            f'there is no policy "{name}": built in are {", ".join(BUILT_IN)}; others come as entry points of the '
            f"group {GROUP}, from packages installed beside the policy"
        )
    if len(entries) > 1:
        raise ValueError(f'there are {len(entries)} policies "{name}": uninstall all packages but one that bring it')
    (entry,) = entries
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # whatever a foreign module raises when it is imported
        raise ValueError(f'policy "{name}" cannot be imported from {entry.value}: {reason(error)}') from error
    if not isinstance(found, Policy) or found.name != name:
        raise ValueError(f'policy "{name}": {entry.value} is no Policy with this name')
    return guarded(found)
