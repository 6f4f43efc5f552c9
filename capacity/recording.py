"""Traffic as a Prometheus remembers it: the proxies' counters of calls, and what policies and servers measured."""

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate_eviction.simulate.trace import shown

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import count_of, listed

from . import triton
from .counters import LOOKBACK_SECONDS, Added, Counters
from .prometheus import Prometheus, Series, TooMuchError, copy_labels, without_copies
from .trace import Calls, Measured, Recording, no_calls

HOUR = 3600.0
_MOST_HOURS = 366 * 24.0
_LEAST_SECONDS = 60.0  # Of a piece: where even that is too much to ask for, nothing helps.
_MOST_SAMPLES = 300_000  # Of one answer: where there are more, the next one is about half the time.
_GAP_SECONDS = 900.0  # Between two scrapes: what was called meanwhile is known by number, and hardly by time.
PROXIES = "tidegate_proxy_in_flight{$match}"  # Each proxy has it once, from its start on.
_PRESENT = f"{PROXIES}[$length]"
_CALLS = "tidegate_proxy_requests_total{$match}[$length]"
_FOOTPRINTS = (
    "max by (namespace, model, from) (max_over_time(tidegate_eviction_model_footprint_bytes{$match}[$length]))"
)
_LOADS = "avg by (namespace, model) (avg_over_time(tidegate_eviction_model_load_seconds{$match}[$length]))"
_QUERIES = _PRESENT, _CALLS, _FOOTPRINTS, _LOADS, triton.WORK_SECONDS, triton.REQUESTS
_SURE = "measured", "declared", "estimated"  # How a footprint may be known, the surest first.
_BUSY = frozenset({("http", "503"), ("grpc", "8"), ("grpc", "14")})  # Statuses of calls that are to come again.
_OTHERS = "*"  # What the proxies call all models that have no series of their own.

Key = tuple[str, str]  # Namespace and model.


@dataclass
class _Seen:
    """What was gathered. Calls are in seconds since the beginning, by namespace, server and model."""

    calls: dict[tuple[str, str, str], Calls] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    footprints: dict[Key, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    loads: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    work_seconds: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    requests: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    how_many: Counter[str] = field(default_factory=Counter)  # Calls that there is something to say of.

    def take_calls(self, added: Iterable[Added], start: float) -> None:
        """Take in calls: between two scrapes they are spread evenly."""
        for labels, since, until, number in added:
            step = (until - since) / number
            moments = (since - start + (each + 0.5) * step for each in range(number))
            kept = array("d", (at for at in moments if at >= 0))
            if not kept:
                continue
            if labels["model"] == _OTHERS:
                self.how_many["unnamed"] += len(kept)
                continue
            self.calls[labels.get("namespace", ""), labels["server"], labels["model"]].extend(kept)
            self.how_many["busy"] += len(kept) * ((labels["protocol"], labels["status"]) in _BUSY)
            self.how_many["adrift"] += len(kept) * (until - since > _GAP_SECONDS)

    def take_sizes(
        self, footprints: Iterable[Series], loads: Iterable[Series], work: Iterable[Series], requests: Iterable[Series]
    ) -> None:
        """Take in what was measured: of footprints what is said last, of times the mean."""
        for key, labels, value in _values(footprints):
            self.footprints[key][labels.get("from", "")] = value
        for key, _, value in _values(loads):
            self.loads[key].append(value)
        for key, _, value in _values(work):
            self.work_seconds[key] += value
        for key, _, value in _values(requests):
            self.requests[key] += value

    def measured(self, key: Key) -> Measured:
        """Return what is known of a model."""
        sizes, loads, requests = self.footprints.get(key, {}), self.loads.get(key), self.requests[key]
        return Measured(
            footprint_bytes=round(next((sizes[how] for how in _SURE if how in sizes), 0)),
            load_seconds=math.fsum(loads) / len(loads) if loads else None,
            warm_seconds=self.work_seconds[key] / requests if requests else 0.0,
        )


def seconds_of(hours: float) -> float:
    """Return how many seconds so many hours are. Raises CommandError."""
    if not 0 < hours <= _MOST_HOURS:
        raise CommandError(f"--hours {hours:g} is not more than 0 and at most {_MOST_HOURS:g}, a year.", WRONG_INPUT)
    return hours * HOUR


def record(prometheus: Prometheus, hours: float, now: float) -> Recording:
    """Return what a Prometheus remembers of the last hours before a Unix time. Raises CommandError."""
    start = round(now - seconds_of(hours), 3)
    counters, seen = Counters(frozenset({"server", "model", "protocol", "status"})), _Seen()
    asked = _Query(prometheus)
    ends = [start, *(start + hour * HOUR for hour in range(1, math.ceil(hours))), round(now, 3)]
    copies = copy_labels(each for end in ends for each in prometheus.ask(PROXIES, end))
    at = start - LOOKBACK_SECONDS
    for end in shown(ends, "asking Prometheus", len(ends)):
        while at < end:
            until = asked.until(at, end)
            if (answers := asked.piece(at, until)) is not None:
                present, calls, *sizes = answers
                counters.scraped(without_copies(present, copies))
                seen.take_calls(counters.added(without_copies(calls, copies)), start)
                seen.take_sizes(*sizes)
                at = until
    if counters.begun is None:
        raise CommandError(
            f"{prometheus.url} has no series of Tidegate's proxies{_matching(prometheus)} in these {hours:g} hours. "
            "Does it scrape their admin port (`monitoring` in the definition)?"
        )
    if not seen.calls:
        raise no_calls(f"{prometheus.url} remembers{_matching(prometheus)} in the last {hours:g} hours")
    late = counters.begun - start
    lost = [f"the first {late / HOUR:.1f} of these {hours:g} hours: Prometheus has nothing of them"]
    recording = _of_one_namespace(seen, lost if late > _GAP_SECONDS else [])
    if copies:
        recording.source = (
            f"Prometheus has every series several times, by {listed(sorted(copies))}: one of each counts."
        )
    return recording


@dataclass
class _Query:
    """Asks in pieces, which are made smaller where they are too much for the server or for us."""

    prometheus: Prometheus
    seconds: float = HOUR

    def until(self, begin: float, end: float) -> float:
        """Return where the piece ends that begins here."""
        return min(end, round(begin + self.seconds, 3))

    def piece(self, begin: float, until: float) -> list[list[Series]] | None:
        """Return the answers to all queries about a time; None where it is to be asked about less time."""
        length = f"{round((until - begin) * 1e3)}ms"
        try:
            answers = [self.prometheus.ask(query.replace("$length", length), until) for query in _QUERIES]
        except TooMuchError:
            if self.seconds <= _LEAST_SECONDS:
                raise
            self.seconds = max(_LEAST_SECONDS, self.seconds / 2)
            return None
        if sum(len(series.samples) for answer in answers for series in answer) > _MOST_SAMPLES:
            self.seconds = max(_LEAST_SECONDS, self.seconds / 2)
        return answers


def _of_one_namespace(seen: _Seen, lost: list[str]) -> Recording:
    namespaces = sorted({namespace for namespace, _, _ in seen.calls})
    if len(namespaces) > 1:
        example = f"--match 'namespace=\"{namespaces[0]}\"'"
        raise CommandError(f"There are calls in {listed(namespaces)}: say which, as in {example}.", WRONG_INPUT)
    (namespace,) = namespaces
    known = {model for place, model in seen.footprints if place == namespace}
    measured = {model: seen.measured((namespace, model)) for model in known}
    how_many = seen.how_many
    if how_many["unnamed"]:
        lost.append(f"{count_of(how_many['unnamed'], 'call')} of models without series of their own (`*`)")
    if how_many["adrift"]:
        lost.append(
            f"when {count_of(how_many['adrift'], 'call')} were: nothing was scraped for a quarter of an hour or more"
        )
    calls = {(server, model): seconds for (_, server, model), seconds in seen.calls.items()}
    return Recording(calls, measured, how_many["busy"], lost)


def _values(answer: Iterable[Series]) -> Iterable[tuple[Key, Mapping[str, str], float]]:
    for series in answer:
        (_, value) = series.samples[-1]
        if math.isfinite(value) and "model" in series.labels:
            yield (series.labels.get("namespace", ""), series.labels["model"]), series.labels, value


def _matching(prometheus: Prometheus) -> str:
    return f" with {prometheus.match}" if prometheus.match else ""
