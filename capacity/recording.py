"""Traffic from a Prometheus: the proxies' counters of calls, and the measurements of policies and servers."""

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
_LEAST_SECONDS = 60.0  # Of a piece. If even that exceeds the server's limits, give up.
_MOST_SAMPLES = 300_000  # In one response. After more, the next piece is half as long.
_GAP_SECONDS = 900.0  # Between two scrapes. The number of calls in a longer gap is known, but hardly their times.
PROXIES = "tidegate_proxy_in_flight{$match}"  # Each proxy has it once, from its start.
_PRESENT = f"{PROXIES}[$length]"
_CALLS = "tidegate_proxy_requests_total{$match}[$length]"
_FOOTPRINTS = (
    "max by (namespace, model, from) (max_over_time(tidegate_eviction_model_footprint_bytes{$match}[$length]))"
)
_LOADS = "avg by (namespace, model) (avg_over_time(tidegate_eviction_model_load_seconds{$match}[$length]))"
_QUERIES = _PRESENT, _CALLS, _FOOTPRINTS, _LOADS, triton.WORK_SECONDS, triton.REQUESTS
_SURE = "measured", "declared", "estimated"  # Sources of a footprint, the most reliable first.
_BUSY = frozenset({("http", "503"), ("grpc", "8"), ("grpc", "14")})  # Statuses of calls that clients should retry.
_OTHERS = "*"  # The proxies' label for all models without a separate series.

Key = tuple[str, str]  # Namespace and model.


@dataclass
class _Seen:
    """The collected data. Calls are in seconds since the start, by namespace, server and model."""

    calls: dict[tuple[str, str, str], Calls] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    footprints: dict[Key, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    loads: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    work_seconds: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    requests: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    how_many: Counter[str] = field(default_factory=Counter)  # Calls that the notes report.

    def take_calls(self, added: Iterable[Added], start: float) -> None:
        """Add calls, spread evenly between two scrapes."""
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
        """Add measurements: the last footprint, and the mean of times."""
        for key, labels, value in _values(footprints):
            self.footprints[key][labels.get("from", "")] = value
        for key, _, value in _values(loads):
            self.loads[key].append(value)
        for key, _, value in _values(work):
            self.work_seconds[key] += value
        for key, _, value in _values(requests):
            self.requests[key] += value

    def measured(self, key: Key) -> Measured:
        sizes, loads, requests = self.footprints.get(key, {}), self.loads.get(key), self.requests[key]
        return Measured(
            footprint_bytes=round(next((sizes[how] for how in _SURE if how in sizes), 0)),
            load_seconds=math.fsum(loads) / len(loads) if loads else None,
            warm_seconds=self.work_seconds[key] / requests if requests else 0.0,
        )


def seconds_of(hours: float) -> float:
    """Return hours in seconds. Raises CommandError."""
    if not 0 < hours <= _MOST_HOURS:
        why = f"it must be more than 0 and at most {_MOST_HOURS:g}, a year"
        raise CommandError(f"--hours {hours:g}: {why}.", WRONG_INPUT)
    return hours * HOUR


def record(prometheus: Prometheus, hours: float, now: float) -> Recording:
    """Return the recording of the last hours before a Unix time. Raises CommandError."""
    start = round(now - seconds_of(hours), 3)
    counters, seen = Counters(frozenset({"server", "model", "protocol", "status"})), _Seen()
    query = _Query(prometheus)
    ends = [start, *(start + hour * HOUR for hour in range(1, math.ceil(hours))), round(now, 3)]
    copies = copy_labels(each for end in ends for each in prometheus.query(PROXIES, end))
    at = start - LOOKBACK_SECONDS
    for end in shown(ends, "querying Prometheus", len(ends)):
        while at < end:
            until = query.until(at, end)
            if (results := query.piece(at, until)) is not None:
                present, calls, *sizes = results
                counters.scraped(without_copies(present, copies))
                seen.take_calls(counters.added(without_copies(calls, copies)), start)
                seen.take_sizes(*sizes)
                at = until
    if counters.begun is None:
        raise CommandError(
            f"{prometheus.url} has no series of Tidegate's proxies{_matching(prometheus)} in these {hours:g} hours. "
            "Check that it scrapes their admin port (`monitoring` in the definition)."
        )
    if not seen.calls:
        raise no_calls(f"{prometheus.url}{_matching(prometheus)} in the last {hours:g} hours")
    late = counters.begun - start
    lost = [f"the first {late / HOUR:.1f} of these {hours:g} hours, which Prometheus does not have"]
    recording = _of_one_namespace(seen, lost if late > _GAP_SECONDS else [])
    if copies:
        recording.source = (
            f"Prometheus has each series several times, which differ in {listed(sorted(copies))}. One of each counts."
        )
    return recording


@dataclass
class _Query:
    """Queries in pieces, which become shorter when they exceed limits of the server or of this program."""

    prometheus: Prometheus
    seconds: float = HOUR

    def until(self, begin: float, end: float) -> float:
        """Return the end of the piece that begins here."""
        return min(end, round(begin + self.seconds, 3))

    def piece(self, begin: float, until: float) -> list[list[Series]] | None:
        """Return the results of all queries for a piece. None if the piece must be shorter."""
        length = f"{round((until - begin) * 1e3)}ms"
        try:
            results = [self.prometheus.query(query.replace("$length", length), until) for query in _QUERIES]
        except TooMuchError:
            if self.seconds <= _LEAST_SECONDS:
                raise
            self.seconds = max(_LEAST_SECONDS, self.seconds / 2)
            return None
        if sum(len(series.samples) for result in results for series in result) > _MOST_SAMPLES:
            self.seconds = max(_LEAST_SECONDS, self.seconds / 2)
        return results


def _of_one_namespace(seen: _Seen, lost: list[str]) -> Recording:
    namespaces = sorted({namespace for namespace, _, _ in seen.calls})
    if len(namespaces) > 1:
        example = f"--match 'namespace=\"{namespaces[0]}\"'"
        raise CommandError(f"There are calls in {listed(namespaces)}. Add one of them: {example}.", WRONG_INPUT)
    (namespace,) = namespaces
    known = {model for place, model in seen.footprints if place == namespace}
    measured = {model: seen.measured((namespace, model)) for model in known}
    how_many = seen.how_many
    if how_many["unnamed"]:
        lost.append(f"{count_of(how_many['unnamed'], 'call')} of models without a separate series (`*`)")
    if how_many["adrift"]:
        lost.append(f"the times of {count_of(how_many['adrift'], 'call')}, in gaps of 15 minutes or more of scrapes")
    calls = {(server, model): seconds for (_, server, model), seconds in seen.calls.items()}
    return Recording(calls, measured, how_many["busy"], lost)


def _values(answer: Iterable[Series]) -> Iterable[tuple[Key, Mapping[str, str], float]]:
    for series in answer:
        (_, value) = series.samples[-1]
        if math.isfinite(value) and "model" in series.labels:
            yield (series.labels.get("namespace", ""), series.labels["model"]), series.labels, value


def _matching(prometheus: Prometheus) -> str:
    return f" with {prometheus.match}" if prometheus.match else ""
