"""Counts events in plain numbers, at next to no cost, and writes the counts of calls for Prometheus."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any

from tidegate_contracts import metrics
from tidegate_contracts.metrics import OTHERS

from ..problems import Problem

SECONDS = metrics.SECONDS["calls"]


@dataclass(slots=True, eq=False)
class Histogram:
    """Counts of durations in seconds, by the bounds SECONDS, and their sum."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus has them: each bound, and the number of durations up to it."""
        return list(zip([*map(str, SECONDS), "+Inf"], map(float, accumulate(self.buckets)), strict=True))


@dataclass(slots=True, eq=False)
class CallCount(Histogram):
    """Statuses, bytes and a latency histogram of the calls of one model over one protocol."""

    statuses: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    bytes_in: int = 0
    bytes_out: int = 0

    def ended(self, status: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        self.statuses[status] += 1
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out


Caller = tuple[str, str]  # A principal's name, and its source.


class Meter:
    """All counts of a proxy. The first `models` models and `callers` callers are counted by name, the rest together as
    `OTHERS` (no callers if `callers` is 0). A removed model gives up its place."""

    def __init__(self, models: int = 1000, callers: int = 0) -> None:
        self._most_models, self.most_callers = models, callers
        self._models: set[tuple[str, str]] = set()
        self.unnamed: set[tuple[str, str]] = set()  # Called models that have no place.
        self._callers: set[Caller] = set()
        self.calls: dict[tuple[str, str, str], CallCount] = defaultdict(CallCount)
        """By server, model and protocol. They stay the same when tables are reloaded."""
        self.tokens: dict[tuple[str, str, str, str], int] = defaultdict(int)  # By server, model, source and part.
        self.callers: dict[tuple[str, str, str, int], int] = defaultdict(int)  # By caller, protocol and status.
        self.problems: dict[tuple[str, str, str, str, str], int] = defaultdict(int)
        """By type, reason, server, pool and replica. The last three are empty if unknown."""
        self.model_problems: dict[tuple[str, str, str, str], int] = defaultdict(int)  # By server, model, type, reason.
        self.upstream_errors: dict[tuple[str, str], int] = defaultdict(int)
        self.lease_acquires: dict[tuple[str, str, str], int] = defaultdict(int)  # By server, pool and outcome.
        self.lease_waits: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        """Of requests that found no lease, by server and pool."""
        self.lease_spills: dict[tuple[str, str], int] = defaultdict(int)
        """Requests that went on to another replica, because the first had no memory for their model."""

    def named(self, server: str, model: str) -> tuple[str, str]:
        """Return the server and the name under which its model is counted."""
        found = server, model
        if found in self._models:
            return found
        if len(self._models) >= self._most_models:
            self.unnamed.add(found)
            return server, OTHERS
        self._models.add(found)
        return found

    def of_calls(self, server: str, model: str, protocol: str) -> CallCount:
        return self.calls[*self.named(server, model), protocol]

    def called(self, principal: str, source: str, protocol: str, status: int) -> None:
        """Count a call by its caller, unless `most_callers` is 0."""
        caller = principal, source
        if caller not in self._callers:
            if len(self._callers) < self.most_callers:
                self._callers.add(caller)
            else:
                caller = OTHERS, ""
        self.callers[*caller, protocol, status] += 1

    def used(self, server: str, model: str, source: str, tokens: tuple[int, int]) -> None:
        """Count the tokens of a call's prompt and completion. `source` authenticated its caller."""
        for part, number in zip(("prompt", "completion"), tokens, strict=True):
            self.tokens[*self.named(server, model), source, part] += number

    def problem(self, problem: Problem, server: str = "", pool: str = "", replica: str = "", model: str = "") -> None:
        """Count a problem that ended a call, and where, as far as known."""
        word, why = problem.type.word, problem.why
        self.problems[word, why, server, pool, replica] += 1
        if model:
            self.model_problems[*self.named(server, model), word, why] += 1

    def forget_models(self, is_there: Callable[[str, str], object]) -> list[tuple[str, str]]:
        """Drop the counts of removed models, and return as many others that can take their places."""
        gone = {each for each in self._models if not is_there(*each)}
        self._models -= gone
        tables: tuple[dict[Any, Any], ...] = self.calls, self.model_problems, self.tokens
        for table in tables if gone else ():
            for key in [key for key in table if key[:2] in gone]:
                del table[key]
        heirs = [*islice(self.unnamed, len(gone))]
        self.unnamed.difference_update(heirs)
        return heirs

    def count_unnamed(self, is_there: Callable[[str, str], object]) -> int:
        """Return how many models of the table are counted without their names."""
        self.unnamed.difference_update([each for each in list(self.unnamed) if not is_there(*each)])
        return len(self.unnamed)

    def forget_replicas(self, present: Collection[str]) -> None:
        """Drop the counts of removed replicas, whose names change for as long as the proxy runs."""
        for key in [key for key in list(self.problems) if key[-1] and key[-1] not in present]:
            self.problems.pop(key, None)


AT_ONCE = 50  # Counts of calls in one piece, which takes about a millisecond.


def pieces(meter: Meter) -> Iterator[str]:
    """Return the counts of calls in Prometheus's text format, in pieces: there are some twenty lines for every model.

    Calls that end meanwhile can be in a later piece and not in an earlier one. Names of servers and models need no
    escaping. Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, 0.0.4).
    """
    counts = [
        (f'server="{server}",model="{model}",protocol="{protocol}"', count)
        for (server, model, protocol), count in list(meter.calls.items())
    ]
    for word, lines in _LINES.items():
        of = metrics.PROXY[word]
        name = of.series_name
        yield f"# HELP {name} {of.text}\n# TYPE {name} {of.kind}\n"
        for start in range(0, len(counts), AT_ONCE):
            yield "".join(lines(name, labels, count) for labels, count in counts[start : start + AT_ONCE])


def _requests(name: str, labels: str, count: CallCount) -> str:
    statuses = list(count.statuses.items())
    return "".join(f'{name}{{{labels},status="{status}"}} {number}\n' for status, number in statuses)


def _seconds(name: str, labels: str, count: CallCount) -> str:
    totals = count.cumulative()
    buckets = "".join(f'{name}_bucket{{{labels},le="{bound}"}} {total:.0f}\n' for bound, total in totals)
    return f"{buckets}{name}_count{{{labels}}} {totals[-1][1]:.0f}\n{name}_sum{{{labels}}} {count.seconds!r}\n"


_LINES: dict[str, Callable[[str, str, CallCount], str]] = {
    "requests": _requests,
    "request_seconds": _seconds,
    "request_bytes": lambda name, labels, count: f"{name}{{{labels}}} {count.bytes_in}\n",
    "response_bytes": lambda name, labels, count: f"{name}{{{labels}}} {count.bytes_out}\n",
}
