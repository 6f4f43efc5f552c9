"""Simulations of pools over a trace: each once, as many at a time as there are cores, in processes."""

import math
import os
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidegate_eviction.policies.registry import find
from tidegate_eviction.simulate.engine import SimulationSetting, simulate
from tidegate_eviction.simulate.trace import Outcome, Trace, quantile, shown

from stacks.command import CommandError
from stacks.definition.pools import OnDemand

MOST_REFUSED = 0.1  # Share of the calls of any one model.
_ROUNDING = 1e-6  # Seconds.


def setting_of(
    loading: OnDemand, capacity_bytes: int, replicas: int, pinned: frozenset[str] = frozenset()
) -> SimulationSetting:
    """Return how a pool is simulated, whose policy has what its container has by default; ValueError for a policy that
    is not installed here."""
    return SimulationSetting(
        policy=find(loading.policy),
        capacity_bytes=capacity_bytes,
        idle_seconds=loading.idle_seconds,
        wait_seconds=loading.wait_seconds,
        lease_seconds=loading.lease_seconds,
        replicas=replicas,
        pinned=pinned,
    )


@dataclass(frozen=True)
class Figures:
    """What callers of one pool met. Times are seconds."""

    requests: int = 0
    warm: int = 0  # Answered at once.
    answered: int = 0  # … or after a wait that the pool allows.
    loads: int = 0
    waits: tuple[float, ...] = ()  # Of those who were answered, and not at once, the shortest first.
    lost: Mapping[str, float] = field(default_factory=dict)
    """By model: what its callers waited, and the longest wait for each who was refused, busy or too large."""
    refusals: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # By model: calls refused, and all calls.
    largest: int = 0  # Bytes of the largest model, called or not.

    @property
    def refused(self) -> int:
        """Requests that were refused as busy, or that their model is too large."""
        return self.requests - self.answered

    @property
    def share_warm(self) -> float:
        """Share of requests that were answered at once."""
        return self.warm / self.requests if self.requests else 1.0

    @property
    def share_waited(self) -> float:
        """Share of requests that were answered after a wait."""
        return (self.answered - self.warm) / self.requests if self.requests else 0.0

    @property
    def share_refused(self) -> float:
        """Share of requests that were refused."""
        return self.refused / self.requests if self.requests else 0.0

    @property
    def worst_served(self) -> tuple[str, int, int] | None:
        """The model with the largest share of calls refused, how many those are, and of how many; None if none is."""
        refused = [(count / calls, count, calls, name) for name, (count, calls) in self.refusals.items() if count]
        if not refused:
            return None
        _, count, calls, name = max(refused)
        return name, count, calls

    @property
    def serves_every_model(self) -> bool:
        """Whether no model has all of its calls refused, or more than one and a tenth of them."""
        return all(count <= max(min(1, calls - 1), MOST_REFUSED * calls) for count, calls in self.refusals.values())

    @property
    def lost_seconds(self) -> float:
        """What callers lost."""
        return sum(self.lost.values())

    def wait(self, percent: float) -> float:
        """Return a percentile of the waits of those who met a cold model."""
        return quantile(self.waits, percent)


Run = Callable[[Sequence[SimulationSetting], str], list[Figures]]
"""Returns what comes of a trace with each setting; the text is said beside the progress."""


@contextmanager
def simulations(trace: Trace) -> Iterator[Run]:
    """Run simulations of a trace, in as many processes as this one may use cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    try:
        with ProcessPoolExecutor(cores, initializer=_begin, initargs=(trace,)) as workers:
            yield lambda settings, what: list(shown(workers.map(_simulated, settings), what, len(settings)))
    except BrokenProcessPool:
        raise CommandError("A process of the simulation was ended: is there enough memory?") from None


# ---- in a process of its own ----

_TRACES: list[Trace] = []


def _begin(trace: Trace) -> None:
    """Keep the trace. The parent shows progress, and hears of Ctrl-C."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    _TRACES.append(trace)


def _simulated(setting: SimulationSetting) -> Figures:
    (trace,) = _TRACES
    outcome = simulate(trace, setting)
    return figures(trace, setting.wait_seconds, outcome, first_loads(trace, outcome))


def first_loads(trace: Trace, outcome: Outcome) -> frozenset[int]:
    """Return the positions of the calls that came while their model was loaded for the first time: the simulation
    starts with empty slices, and the pools that it stands for do not."""
    ends: dict[int, float] = {}
    for now, which, size in outcome.memory:
        if size > 0:
            ends.setdefault(which, now)
    first = {which: (end - trace.models[which].load_seconds - _ROUNDING, end) for which, end in ends.items()}
    none = math.inf, -math.inf
    spans = ((position, seconds, *first.get(which, none)) for position, (seconds, which) in enumerate(trace.requests()))
    return frozenset(position for position, seconds, begin, end in spans if begin <= seconds < end)


def figures(trace: Trace, wait_seconds: float, outcome: Outcome, skipped: Collection[int] = ()) -> Figures:
    """Return what callers met, of what came of a simulation, without the calls at some positions, none a hit."""
    counted = [which for position, which in enumerate(trace.which) if position not in skipped]
    calls, answered = Counter(counted), Counter[int]()
    lost = {which: count * wait_seconds for which, count in calls.items()}
    waits = []
    for position, wait in zip(outcome.positions, outcome.waits, strict=True):
        if position not in skipped:
            lost[trace.which[position]] += wait - wait_seconds
            answered[trace.which[position]] += 1
            waits.append(wait)
    cold = len(waits) - outcome.hits
    return Figures(
        requests=len(counted),
        warm=outcome.hits,
        answered=len(waits),
        loads=len(outcome.loads),
        waits=tuple(sorted(waits)[len(waits) - cold :]),
        lost={model.name: max(0.0, lost.get(place, 0.0)) for place, model in enumerate(trace.models)},
        refusals={trace.models[place].name: (count - answered[place], count) for place, count in calls.items()},
        largest=max(model.footprint_bytes for model in trace.models),
    )


def only(trace: Trace, names: Collection[str]) -> Trace:
    """Return a trace with just these models and their requests."""
    kept = [place for place, model in enumerate(trace.models) if model.name in names]
    if len(kept) == len(trace.models):
        return trace
    places = {old: new for new, old in enumerate(kept)}

    def requests() -> Iterator[tuple[float, int]]:
        return ((seconds, places[which]) for seconds, which in trace.requests() if which in places)

    models = tuple(trace.models[place] for place in kept)
    return Trace(models, array("d", (at for at, _ in requests())), array("l", (which for _, which in requests())))
