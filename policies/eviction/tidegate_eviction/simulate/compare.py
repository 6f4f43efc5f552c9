"""Policies side by side over one trace, with what knows the future, other caches, and the bound that nobody beats."""

import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..choosing.policy import Policy
from .engine import simulate
from .errors import MissingLibraryError
from .offline import belady, weighted_belady
from .outcome import Bound, Outcome
from .peers import peers
from .setting import Setting
from .trace import Trace

TELL_EVERY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Row:
    """One who was asked the same requests as the others."""

    name: str
    kind: Literal["policy", "offline", "libcachesim"]
    outcome: Outcome
    bound: Bound | None = None
    """Of the requests that it answered, when it did."""

    @property
    def times_bound(self) -> float | None:
        """How many times the least seconds of loading it spent."""
        return self.outcome.load_seconds / self.bound.seconds if self.bound and self.bound.seconds else None


class Telling:
    """Says on stderr how far something long is, every few seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Say it, if it is time."""
        now = time.monotonic()
        if now - self._last >= TELL_EVERY_SECONDS:
            self._last = now
            print(f"{self._what}: {done / total:.0%} …", file=sys.stderr, flush=True)


def run(trace: Trace, setting: Setting) -> Row:
    """Simulate one policy."""
    return Row(setting.policy.name, "policy", simulate(trace, setting, Telling(setting.policy.name)))


def bound_of(trace: Trace, setting: Setting, outcome: Outcome) -> Bound | None:
    """Return what the same answers at the same moments cost at least.

    Several replicas are bounded by one slice as large as all of them, which can hold whatever they hold.
    """
    try:
        from .bound import bound
    except ImportError:
        raise MissingLibraryError("the offline bound, for NumPy is not installed") from None
    return bound(served(trace, outcome), setting.capacity_bytes * setting.replicas, Telling("offline bound"))


def compare(trace: Trace, setting: Setting, policies: Sequence[Policy], bounded: bool = True) -> Iterator[Row]:
    """Yield these policies, then Belady's rules in the same simulation, then libCacheSim's caches.

    What needs a library that is not installed is left out, which is said on stderr.
    """
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
    for offline in (belady(trace), weighted_belady(trace)):
        yield replace(run(trace, replace(setting, policy=offline)), kind="offline")
    try:
        for name, outcome in peers(trace, setting.capacity_bytes * setting.replicas):
            yield Row(f"libCacheSim {name}", "libcachesim", outcome)
    except MissingLibraryError as error:
        _left_out(error)


def _left_out(error: MissingLibraryError) -> None:
    print(f"NOT COMPARED: {error}: pip install 'tidegate-eviction[simulate]'.", file=sys.stderr, flush=True)


def served(trace: Trace, outcome: Outcome) -> Trace:
    """Return the requests that were answered, in the order and at the times in which they began to be worked on."""
    order = sorted(range(outcome.answered), key=outcome.starts.__getitem__)  # stable: at one time, as they were let in
    return Trace(
        trace.models,
        array("d", (outcome.starts[each] for each in order)),
        array("l", (trace.which[outcome.positions[each]] for each in order)),
    )
