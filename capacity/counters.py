"""Increases of Prometheus counters, with their times: takes raw samples, returns the increase between two scrapes.

PromQL's `increase` does not fit, because it extrapolates to values that never existed. It also ignores the first value
of a new counter, which is the only one of a model that was called once.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .prometheus import Series

LOOKBACK_SECONDS = 1200.0
"""It gets samples of so long before it starts to count: twice the longest scrape interval of a definition."""

Labels = frozenset[tuple[str, str]]


class Added(NamedTuple):
    """An increase after one Unix time and before another."""

    labels: Mapping[str, str]
    since: float
    until: float
    number: int


@dataclass
class Counters:
    """Processes a counter's samples, piece after piece. `own` are the metric's labels, others the scrape target's."""

    own: frozenset[str]
    begun: float | None = None  # The first scrape of any target.
    _scrapes: dict[Labels, list[float]] = field(default_factory=dict)
    _last: dict[Labels, tuple[float, float]] = field(default_factory=dict)

    def scraped(self, present: Iterable[Series]) -> None:
        """Add a piece's samples of a metric that every process has from its start, to know the scrape times."""
        for times in self._scrapes.values():
            del times[:-1]
        for series in present:
            times = self._scrapes.setdefault(frozenset(series.labels.items()) - _name(series), [])
            times += [at for at, _ in series.samples if not times or at > times[-1]]
        firsts = [times[0] for times in self._scrapes.values() if times]
        self.begun = min([*firsts, *([] if self.begun is None else [self.begun])], default=None)

    def added(self, counted: Iterable[Series]) -> Iterator[Added]:
        """Yield the increases in the same piece. A counter restarted if it is lower than before, or was missing."""
        for series in counted:
            key = frozenset(series.labels.items())
            process = frozenset((name, value) for name, value in key - _name(series) if name not in self.own)
            last = self._last.get(key)
            for at, value in series.samples:
                if last is not None and at <= last[0]:
                    continue  # the previous piece ended with it
                since = self._since(process, at, last)
                restarted = last is None or value < last[1] or (since is not None and since > last[0])
                before = 0.0 if last is None or restarted else last[1]
                if since is not None and (number := round(value - before)) > 0:
                    yield Added(series.labels, since, at, number)
                last = at, value
            if last is not None:
                self._last[key] = last

    def _since(self, process: Labels, at: float, last: tuple[float, float] | None) -> float | None:
        """Return the previous scrape. None if the increase may be older than all known scrapes."""
        if (known := _before(self._scrapes.get(process, []), at)) is not None or last is not None:
            return max(each for each in (known, last and last[0]) if each is not None)
        if self.begun is None or at - self.begun < LOOKBACK_SECONDS:
            return None
        # A new process: it started after the last scrape of the others.
        others = (_before(times, at) for times in self._scrapes.values())
        return max((each for each in others if each is not None), default=None)


def _before(times: list[float], at: float) -> float | None:
    place = bisect_left(times, at)
    return times[place - 1] if place else None


def _name(series: Series) -> Labels:
    return frozenset({("__name__", series.labels.get("__name__", ""))})
