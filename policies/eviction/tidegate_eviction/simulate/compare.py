"""Policies side by side over one trace or many capacities, with policies that know the future, other caches, and the
bound that no policy can beat.

Belady's rule (IBM Systems Journal 1966) evicts what is wanted again last; weighted, what costs least to load again, per
byte and second until it is wanted. libCacheSim's caches are for orientation (docs/simulator.md): each miss is charged
as a load, and GDSF knows sizes, but no costs.
"""

import math
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ..policies.policy import Candidate, Policy, take
from .engine import SimulationSetting, simulate
from .trace import MissingLibraryError, Outcome, Trace

_TINY = 1e-9


def offline_policies(trace: Trace) -> Iterator[Policy]:
    """Yield Belady's rule, and the same weighted by what loads take and by size; both know this trace."""
    uses: dict[str, array[float]] = {model.name: array("d") for model in trace.models}
    for seconds, which in trace.requests():
        uses[trace.models[which].name].append(seconds)
    load_seconds = {model.name: model.load_seconds for model in trace.models}

    def until(candidate: Candidate, now: float) -> float:
        times = uses[candidate.name]
        place = bisect_right(times, now)
        return times[place] - now if place < len(times) else math.inf

    def worth(candidate: Candidate, now: float) -> float:
        return load_seconds[candidate.name] / max(1, candidate.bytes) / max(_TINY, until(candidate, now))

    yield _policy("Belady", lambda candidate, now: -until(candidate, now))
    yield _policy("Belady, weighted", worth)


def _policy(name: str, worth: Callable[[Candidate, float], float]) -> Policy:
    def choose(candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
        return take(sorted(candidates, key=lambda candidate: worth(candidate, now)), needed_bytes)

    return Policy(name, "It knows every request to come.", choose, idle_limits=False)


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
    next_use = [NEVER] * len(trace)  # of each request, the position of the next one for its model
    seen: dict[int, int] = {}
    for position in range(len(trace) - 1, -1, -1):
        which = trace.which[position]
        next_use[position] = seen.get(which, NEVER)
        seen[which] = position
    for name, called in CACHES.items():
        cache, outcome = getattr(libcachesim, called)(capacity_bytes), Outcome(requests=len(trace))
        for position, (seconds, which) in enumerate(trace.requests()):
            size = trace.models[which].footprint_bytes
            if size > cache.cache_size:
                outcome.too_large += 1
                continue
            after = next_use[position]
            asked = libcachesim.Request(obj_id=which, obj_size=size, clock_time=int(seconds), next_access_vtime=after)
            if not (hit := cache.get(asked)):
                outcome.loads.append((seconds, trace.models[which].load_seconds))
            outcome.started(position, seconds, 0.0, hit=hit)
        yield name, outcome


class Bound(NamedTuple):
    """The least seconds of loading."""

    seconds: float
    exact: bool


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A policy or cache, and what came of the same requests with it."""

    name: str
    kind: Literal["policy", "offline", "libcachesim"]
    outcome: Outcome
    bound: Bound | None = None  # Of the requests that it answered, at the times when it did.

    @property
    def times_bound(self) -> float | None:
        """Seconds spent loading, as a multiple of the bound."""
        return self.outcome.load_seconds / self.bound.seconds if self.bound and self.bound.seconds else None


def run(trace: Trace, setting: SimulationSetting) -> ComparisonRow:
    """Simulate one policy."""
    return ComparisonRow(setting.policy.name, "policy", simulate(trace, setting))


def bound_of(trace: Trace, setting: SimulationSetting, outcome: Outcome) -> Bound | None:
    """Return the least seconds of loading for the same answers at the same moments."""
    from .bound import bound  # raises MissingLibraryError without NumPy

    # Several replicas are bounded by one slice as large as all of them, which can hold whatever they hold.
    found = bound(served(trace, outcome), setting.capacity_bytes * setting.replicas)
    return None if found is None else Bound(*found)


def compare(
    trace: Trace, setting: SimulationSetting, policies: Sequence[Policy], bounded: bool = True
) -> Iterator[ComparisonRow]:
    """Yield these policies, Belady's rules and libCacheSim's caches; says on stderr what needs a missing library.

    There is no bound with a tier, where loads of one model take different times.
    """
    bounded = bounded and not setting.tier_bytes
    known: dict[tuple[bytes, bytes], Bound | None] = {}
    for policy in policies:
        row = run(trace, replace(setting, policy=policy))
        if bounded:
            answered = row.outcome.starts.tobytes(), row.outcome.positions.tobytes()
            if answered not in known:
                try:
                    known[answered] = bound_of(trace, setting, row.outcome)
                except MissingLibraryError as error:
                    _left_out(error)
                    bounded = False
            row = replace(row, bound=known.get(answered))
        yield row
    for offline in offline_policies(trace):
        yield replace(run(trace, replace(setting, policy=offline)), kind="offline")
    try:
        for name, outcome in peers(trace, setting.capacity_bytes * setting.replicas):
            yield ComparisonRow(f"libCacheSim {name}", "libcachesim", outcome)
    except MissingLibraryError as error:
        _left_out(error)


def _left_out(error: MissingLibraryError) -> None:
    print(
        f"NOT COMPARED: {error}: pip install './policies/eviction[simulate]' in a checkout.",
        file=sys.stderr,
        flush=True,
    )


def served(trace: Trace, outcome: Outcome) -> Trace:
    """Return the requests that were answered, in the order in which they began, and at those times."""
    order = sorted(range(outcome.answered), key=outcome.starts.__getitem__)  # stable: at one time, as they were let in
    starts = array("d", (outcome.starts[each] for each in order))
    return Trace(trace.models, starts, array("l", (trace.which[outcome.positions[each]] for each in order)))


SHARES = tuple(percent / 100 for percent in range(10, 101, 10))


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What each policy does at one capacity."""

    share: float
    capacity_bytes: int
    rows: tuple[ComparisonRow, ...]


def sweep(trace: Trace, setting: SimulationSetting, policies: Sequence[Policy]) -> Iterator[SweepPoint]:
    """Yield what each policy does at each capacity, the smallest first."""
    for share in SHARES:
        capacity = max(1, round(share * trace.total_bytes))
        print(f"capacity {share:.0%} …", file=sys.stderr, flush=True)
        each = (replace(setting, policy=policy, capacity_bytes=capacity) for policy in policies)
        yield SweepPoint(share, capacity, tuple(run(trace, one) for one in each))
