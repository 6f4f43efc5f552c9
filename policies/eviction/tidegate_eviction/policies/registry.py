"""The registry of policies: built-in ones, and those of installed packages.

`cost-aware` evicts first the model with the least load seconds / bytes / max(mean time between uses, time since its
last use). This is the expected cost of its eviction, in seconds of loading per byte and second. It ages without upkeep:
a model that is no longer used falls behind. docs/eviction.md names its sources.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Final

from .policy import Candidate, Policy, guarded, reason, take

GROUP: Final = "tidegate_eviction.policies"
"""The group of entry points whose values are `Policy` objects. The entry's name is the policy's name."""
_LEAST_SECONDS = 1e-9  # Avoids a division by zero.


def least_recently_used(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield candidates, the least recently used first."""
    return _ascending([(candidate.last_use, candidate.name, candidate) for candidate in candidates])


def worth(candidate: Candidate, now: float) -> float:
    """Return a model's worth in expected seconds of loading per byte and second."""
    size = candidate.bytes
    for part in candidate.shared:
        size += part.bytes // part.users
    since = now - candidate.last_use
    if since < candidate.gap_seconds:
        since = candidate.gap_seconds
    return candidate.load_seconds / ((size or 1) * (since if since > _LEAST_SECONDS else _LEAST_SECONDS))


def _ascending(heap: list[tuple[float, str, Candidate]]) -> Iterator[Candidate]:
    """Yield by number, then name. The first takes linear time, the others logarithmic time."""
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[2]


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
            lambda candidates, needed_bytes, _now: take(least_recently_used(candidates), needed_bytes),
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
    """Return a policy by its name. Raises ValueError with one sentence if it does not exist or cannot be used."""
    entries = list(metadata.entry_points(group=GROUP, name=name))
    if name in BUILT_IN:
        if entries:
            other = ", ".join(each.value for each in entries)
            raise ValueError(f'policy "{name}" is built in. Rename the entry point {other}')
        return BUILT_IN[name]
    if not entries:
        raise ValueError(
            f'there is no policy "{name}". The built-in policies are {", ".join(BUILT_IN)}. For another one, install a '
            f"package with an entry point in the group {GROUP}"
        )
    if len(entries) > 1:
        raise ValueError(f'{len(entries)} packages have a policy "{name}". Uninstall all of them except one')
    (entry,) = entries
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # An import can raise anything.
        raise ValueError(f'policy "{name}" cannot be imported from {entry.value}: {reason(error)}') from error
    if not isinstance(found, Policy) or found.name != name:
        raise ValueError(f'policy "{name}": {entry.value} is not a Policy with this name')
    return guarded(found)
