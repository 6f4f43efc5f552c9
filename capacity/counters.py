"""Counters as Prometheus has them, and when they counted: raw samples in, what was added between two scrapes out.

PromQL's `increase` would not do: it extrapolates to numbers that never were, and does not see what a new counter begins
with, which is all that there is of a model that was called once.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .prometheus import Series

LOOKBACK_SECONDS = 1200.0
"""It is fed for so long before it begins to count: twice the longest pause between scrapes that a definition takes."""

Labels = frozenset[tuple[str, str]]


class Added(NamedTuple):
    """Something was counted after one Unix time, and not after another."""

    labels: Mapping[str, str]
    since: float
    until: float
    number: int


@dataclass
class Counters:
    """Goes through the samples of a counter, piece after piece.

    `own` are the labels that are the metric's; all others are those of what is scraped.
    """

    own: frozenset[str]
    begun: float | None = None  # The first scrape of all.
    _scrapes: dict[Labels, list[float]] = field(default_factory=dict)
    _last: dict[Labels, tuple[float, float]] = field(default_factory=dict)

    def scraped(self, present: Iterable[Series]) -> None:
        """Take in a piece's samples of a metric that every process has from its start on: when each was scraped."""
        for times in self._scrapes.values():
            del times[:-1]
        for series in present:
            times = self._scrapes.setdefault(frozenset(series.labels.items()) - _name(series), [])
            times += [at for at, _ in series.samples if not times or at > times[-1]]
        firsts = [times[0] for times in self._scrapes.values() if times]
        self.begun = min([*firsts, *([] if self.begun is None else [self.begun])], default=None)

    def added(self, counted: Iterable[Series]) -> Iterator[Added]:
        """Yield what was counted in the same piece. A counter began anew where it is lower than before, or was gone."""
        for series in counted:
            key = frozenset(series.labels.items())
            process = frozenset((name, value) for name, value in key - _name(series) if name not in self.own)
            last = self._last.get(key)
            for at, value in series.samples:
                if last is not None and at <= last[0]:
                    continue  # the piece before ended with it
                since = self._since(process, at, last)
                began_anew = last is None or value < last[1] or (since is not None and since > last[0])
                before = 0.0 if last is None or began_anew else last[1]
                if since is not None and (number := round(value - before)) > 0:
                    yield Added(series.labels, since, at, number)
                last = at, value
            if last is not None:
                self._last[key] = last

    def _since(self, process: Labels, at: float, last: tuple[float, float] | None) -> float | None:
        """Return when it was scraped before; None where what is counted may be older than all that is known."""
        if (known := _before(self._scrapes.get(process, []), at)) is not None or last is not None:
            return max(each for each in (known, last and last[0]) if each is not None)
        if self.begun is None or at - self.begun < LOOKBACK_SECONDS:
            return None
        # A process that is new: it began after others were scraped.
        others = (_before(times, at) for times in self._scrapes.values())
        return max((each for each in others if each is not None), default=None)


def _before(times: list[float], at: float) -> float | None:
    place = bisect_left(times, at)
    return times[place - 1] if place else None


def _name(series: Series) -> Labels:
    return frozenset({("__name__", series.labels.get("__name__", ""))})
