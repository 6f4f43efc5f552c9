"""Metrics of the catalogue, as Prometheus' client has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from tidegate_contracts.metrics import Family

Labels = str | Sequence[str]
Samples = Mapping[Any, float] | Iterable[tuple[Labels, float]]


def family(of: Family, samples: Samples | float) -> Metric:
    """Return a counter or gauge with its samples, by its labels' values; or with the one that it has without labels."""
    made = (CounterMetricFamily if of.kind == "counter" else GaugeMetricFamily)(of.name, of.text, labels=of.labels)
    if isinstance(samples, int | float):
        samples = {(): samples}
    # As they are now: what is counted may go on, on another thread.
    for said, value in list(samples.items() if isinstance(samples, Mapping) else samples):
        made.add_metric([said] if isinstance(said, str) else said, value)
    return made
