"""How many calls would meet a cold model, estimated without a simulation: thousands of times as fast, and roughly.

A full cache that evicts the least recently used keeps each model for about the same time after its last use, its
characteristic time (Che, Tung and Wang, "Hierarchical Web Caching Systems", IEEE JSAC 2002). Here it is found from the
trace's own pauses between calls of a model: the longest time for which what is kept so fits, on average. Who calls
while a model is loaded waits as the one does whose call began it.
"""

from collections.abc import Iterable

import numpy as np
from tidegate_contracts.placement import ranked
from tidegate_eviction.simulate.trace import Trace

_TIMES = 240  # That are tried, from a second to the whole trace.


class Estimates:
    """Estimates for parts of the models of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._places = {model.name: place for place, model in enumerate(trace.models)}
        self._bytes = np.array([model.footprint_bytes for model in trace.models], float)
        lasts = max(1.0, trace.seconds[-1] - trace.seconds[0])
        times = np.geomspace(1.0, lasts + 1, _TIMES)
        seconds, which = np.array(trace.seconds), np.array(trace.which)
        self._calls = np.bincount(which, minlength=len(trace.models)).astype(float)
        self._first = np.zeros(len(trace.models))
        """By model: calls that come before its first load has ended."""
        kept = np.zeros((len(trace.models), _TIMES))
        self._cold = np.zeros_like(kept)
        """By model and time: these, and those that come later than so after the one before, or during the load."""
        for place, model in enumerate(trace.models):
            at = seconds[which == place]
            if not len(at):
                continue
            load_ends = np.searchsorted(at, at + model.load_seconds, side="right")
            waiting = (load_ends - np.arange(len(at))).astype(float)
            pauses = np.diff(at)
            order = np.argsort(pauses)
            shorter = np.searchsorted(pauses[order], times, side="right")  # How many pauses are at most as long.
            until = np.minimum(seconds[-1] - at[-1], times) + np.append(0, np.cumsum(pauses[order]))[shorter]
            kept[place] = (until + (len(pauses) - shorter) * times) / lasts
            self._first[place] = waiting[0]
            self._cold[place] = waiting.sum() - np.append(0, np.cumsum(waiting[1:][order]))[shorter]
        self._room = kept * self._bytes[:, None]
        """By model and time: bytes that it takes on average when it is kept for so long after each call."""

    def cold(
        self,
        models: Iterable[str],
        room: int,
        replicas: int = 1,
        pinned: frozenset[str] = frozenset(),
        *,
        started: bool = False,
    ) -> float:
        """Return the calls that would meet a cold model, or one that is too large, where replicas have so much room;
        `started`: without those that wait for the first load of each model."""
        names = [str(number) for number in range(replicas)]
        parts: dict[str, list[int]] = {name: [] for name in names}
        for model in sorted(models):
            if model not in pinned:
                parts[names[0] if replicas == 1 else ranked(model, names)[0]].append(self._places[model])
        left = room - sum(self._bytes[self._places[model]] for model in pinned)
        found = (np.array(part, int) for part in parts.values() if part)
        return sum(max(0.0, self._on_one(part, left) - started * float(self._first[part].sum())) for part in found)

    def _on_one(self, places: "np.ndarray[tuple[int], np.dtype[np.int64]]", room: float) -> float:
        fits = self._bytes[places] <= room
        refused = float(self._calls[places[~fits]].sum())
        places = places[fits]
        if self._bytes[places].sum() <= room:
            return refused + float(self._first[places].sum())
        time = int(np.searchsorted(self._room[places].sum(axis=0), room, side="right")) - 1
        return refused + float(self._cold[places, max(0, time)].sum() if time >= 0 else self._calls[places].sum())
