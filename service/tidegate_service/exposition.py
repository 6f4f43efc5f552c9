"""The catalogue's metrics as objects of Prometheus's client."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from tidegate_contracts.metrics import Family

Labels = str | Sequence[str]
Samples = Mapping[Any, float] | Iterable[tuple[Labels, float]]


def family(of: Family, samples: Samples | float) -> Metric:
    """Return a counter or gauge with its samples by label values, or with a single one if it has no labels."""
    made = (CounterMetricFamily if of.kind == "counter" else GaugeMetricFamily)(of.name, of.text, labels=of.labels)
    if isinstance(samples, int | float):
        samples = {(): samples}
    # A copy, because another thread may go on counting.
    for values, value in list(samples.items() if isinstance(samples, Mapping) else samples):
        made.add_metric([values] if isinstance(values, str) else values, value)
    return made
