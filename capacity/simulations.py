"""Simulations of pools over a trace, in as many processes as there are CPUs."""

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
from multiprocessing import active_children

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
    """Return the simulation setting of a pool. The policy gets its container's defaults. Raises ValueError for a
    policy that is not installed here."""
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
    """The effect on callers of one pool. Times are seconds."""

    requests: int = 0
    warm: int = 0  # Served without a wait.
    answered: int = 0  # Served without a wait, or after a wait that the pool allows.
    loads: int = 0
    waits: tuple[float, ...] = ()  # Of requests that were served after a wait, sorted.
    lost: Mapping[str, float] = field(default_factory=dict)
    """By model: the waiting time, plus the longest wait for each refused call (busy or too large)."""
    refusals: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # By model: calls refused, and all calls.
    largest: int = 0  # Bytes of the largest model, called or not.

    @property
    def refused(self) -> int:
        """Requests that were refused as busy, or because their model is too large."""
        return self.requests - self.answered

    @property
    def share_warm(self) -> float:
        return self.warm / self.requests if self.requests else 1.0

    @property
    def share_waited(self) -> float:
        return (self.answered - self.warm) / self.requests if self.requests else 0.0

    @property
    def share_refused(self) -> float:
        return self.refused / self.requests if self.requests else 0.0

    @property
    def worst_served(self) -> tuple[str, int, int] | None:
        """The model with the largest share of refused calls, with refused and all calls. None if none was refused."""
        refused = [(count / calls, count, calls, name) for name, (count, calls) in self.refusals.items() if count]
        if not refused:
            return None
        _, count, calls, name = max(refused)
        return name, count, calls

    @property
    def serves_every_model(self) -> bool:
        """Whether each model has at most a tenth of its calls refused, or one call, and never all of them."""
        return all(count <= max(min(1, calls - 1), MOST_REFUSED * calls) for count, calls in self.refusals.values())

    @property
    def lost_seconds(self) -> float:
        return sum(self.lost.values())

    def wait(self, percent: float) -> float:
        """Return a percentile of the waits for cold models."""
        return quantile(self.waits, percent)


Run = Callable[[Sequence[SimulationSetting], str], list[Figures]]
"""Returns the figures of a trace with each setting. The text labels the progress bar."""


@contextmanager
def simulations(trace: Trace) -> Iterator[Run]:
    """Run simulations of a trace, in as many processes as this one may use CPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    try:
        with ProcessPoolExecutor(cores, initializer=_begin, initargs=(trace,)) as workers:
            try:
                yield lambda settings, what: list(shown(workers.map(_simulated, settings), what, len(settings)))
            except BaseException:
                for worker in active_children():  # otherwise the exit would wait for them
                    worker.kill()
                raise
    except BrokenProcessPool:
        raise CommandError("A process of the simulation was killed. Check that there is enough memory.") from None


_TRACES: list[Trace] = []


def _begin(trace: Trace) -> None:
    """Keep the trace. Only the parent prints progress and handles Ctrl-C."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    _TRACES.append(trace)


def _simulated(setting: SimulationSetting) -> Figures:
    (trace,) = _TRACES
    return expect(trace, setting, is_running=True)


def expect(trace: Trace, setting: SimulationSetting, *, is_running: bool = False) -> Figures:
    """Return the simulated figures of a pool. With `is_running`, without the first load of each model."""
    if not len(trace):
        return Figures()
    outcome = simulate(trace, setting)
    return figures(trace, setting.wait_seconds, outcome, first_loads(trace, outcome) if is_running else ())


def first_loads(trace: Trace, outcome: Outcome) -> frozenset[int]:
    """Return the positions of calls during their model's first load. A simulation starts empty, real pools do not."""
    ends: dict[int, float] = {}
    for now, which, size in outcome.memory:
        if size > 0:
            ends.setdefault(which, now)
    first = {which: (end - trace.models[which].load_seconds - _ROUNDING, end) for which, end in ends.items()}
    none = math.inf, -math.inf
    spans = ((position, seconds, *first.get(which, none)) for position, (seconds, which) in enumerate(trace.requests()))
    return frozenset(position for position, seconds, begin, end in spans if begin <= seconds < end)


def figures(trace: Trace, wait_seconds: float, outcome: Outcome, skipped: Collection[int] = ()) -> Figures:
    """Return the figures of a simulation, without the calls at the skipped positions, none of which is a hit."""
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
    """Return a trace with only these models and their requests."""
    kept = [place for place, model in enumerate(trace.models) if model.name in names]
    if len(kept) == len(trace.models):
        return trace
    places = {old: new for new, old in enumerate(kept)}

    def requests() -> Iterator[tuple[float, int]]:
        return ((seconds, places[which]) for seconds, which in trace.requests() if which in places)

    models = tuple(trace.models[place] for place in kept)
    return Trace(models, array("d", (at for at, _ in requests())), array("l", (which for _, which in requests())))
