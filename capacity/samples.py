"""Samples of a window of time from Prometheus, for advice: of one environment, by pools and their pods."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidegate_eviction.simulate.trace import Trace

from .prometheus import Series

SCRAPED: Final = "up"  # Prometheus' own metric of each target.
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Samples:
    """Samples of a window of time. Sums are over all series with the same values of the given labels."""

    seconds: float  # The window's length.
    series: Callable[[str], Sequence[Series]]
    """Returns the series of a metric, all sampled at the same times."""

    def increase(self, metric: str, *labels: str) -> defaultdict[Labels, float]:
        """Return the increase of a counter. A counter that started in the window counts from 0."""
        begun: defaultdict[str, float] = defaultdict(lambda: math.inf)  # The first scrape of each pod.
        for each in self.series(SCRAPED):
            if each.samples:
                pod = each.labels.get("pod", "")
                begun[pod] = min(begun[pod], each.samples[0][0])

        def grown(series: Series) -> float:
            (at, first), *_ = series.samples
            values = [
                0.0 if at > begun[series.labels.get("pod", "")] else first,
                *(value for _, value in series.samples),
            ]
            return sum(value - before if value >= before else value for before, value in pairwise(values))

        return _summed(self.series(metric), labels, grown)

    def mean(self, metric: str, *labels: str) -> defaultdict[Labels, float]:
        """Return the mean of a gauge. Missing samples count as 0."""
        found = self.series(metric)
        times = max((len(each.samples) for each in found), default=1)
        return _summed(found, labels, lambda each: sum(value for _, value in each.samples) / times)

    def last(self, metric: str, *labels: str) -> defaultdict[Labels, float]:
        """Return the last value of a gauge, the largest if several series have the same labels."""
        kept: defaultdict[Labels, float] = defaultdict(float)
        for each in self.series(metric):
            if each.samples and (key := _values(each, labels)) is not None:
                kept[key] = max(kept[key], each.samples[-1][1])
        return kept


def _values(series: Series, labels: Sequence[str]) -> Labels | None:
    return tuple(series.labels[each] for each in labels) if all(each in series.labels for each in labels) else None


def _summed(
    found: Sequence[Series], labels: Sequence[str], figure: Callable[[Series], float]
) -> defaultdict[Labels, float]:
    kept: defaultdict[Labels, float] = defaultdict(float)
    for each in found:
        if each.samples and (key := _values(each, labels)) is not None:
            kept[key] += figure(each)
    return kept


@dataclass(frozen=True)
class Recorded:
    """Samples of a window of one environment, and the trace of its calls, if there is one."""

    samples: Samples
    trace: Trace | None
    why_no_trace: str = ""


@dataclass(frozen=True)
class PoolSamples:
    """Samples of one pool: proxies' metrics by the names of server and pool, pods' metrics by pod names."""

    samples: Samples
    server: str
    pool: str
    pods: "re.Pattern[str]"

    def of_pods(self, found: Mapping[Labels, float]) -> defaultdict[Labels, float]:
        """Return values whose first label is one of the pool's pods, summed by their other labels."""
        kept: defaultdict[Labels, float] = defaultdict(float)
        for (pod, *others), value in found.items():
            if self.pods.fullmatch(pod):
                kept[tuple(others)] += value
        return kept

    def at_pods(self, metric: str, *labels: str) -> defaultdict[Labels, float]:
        return self.of_pods(self.samples.increase(metric, "pod", *labels))

    def by_model(self, metric: str) -> defaultdict[str, float]:
        return defaultdict(float, {model: value for (model,), value in self.at_pods(metric, "model").items()})

    def at_proxies(self, metric: str, *labels: str) -> dict[Labels, float]:
        found = self.samples.increase(metric, "server", "pool", *labels)
        return {labels[2:]: value for labels, value in found.items() if labels[:2] == (self.server, self.pool)}

    def last_of_models(self, metric: str) -> defaultdict[str, float]:
        """Return the last value of a gauge for each model, from the pod where it is largest."""
        kept: defaultdict[str, float] = defaultdict(float)
        for (pod, model), value in self.samples.last(metric, "pod", "model").items():
            if self.pods.fullmatch(pod):
                kept[model] = max(kept[model], value)
        return kept

    def replicas(self, *metrics: str) -> int:
        return len({pod for each in metrics for (pod,) in self.samples.last(each, "pod") if self.pods.fullmatch(pod)})
