"""What a dashboard is made of, before it is written in Grafana's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HERE = 'cluster=~"$cluster", namespace=~"$namespace"'
"""Where a dashboard looks. `cluster` is a label of a Prometheus that sees several; without it every value matches."""
RATE = "[$__rate_interval]"
BY = "cluster, namespace"
BY_POD = f"{BY}, pod"


@dataclass(frozen=True)
class Query:
    """One question to Prometheus, and what its series are called: a template of Grafana's."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture. Its description says what a high value means, and what to do then."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"  # Of Grafana's units.
    shape: Literal["lines", "stack", "figure", "table"] = "lines"
    width: int = 8  # Of 24.
    red_from: float | None = None  # A figure that is so high is red;
    red_below: float | None = None  # … or one that is lower than this.
    needs: str = ""  # What else must be in the cluster for it to show anything.


@dataclass(frozen=True)
class Dashboard:
    """Rows of panels, by the rows' titles; `variables` are labels that a reader chooses a value of, from a metric."""

    name: str
    title: str
    description: str
    rows: Mapping[str, tuple[Panel, ...]]
    variables: Mapping[str, str]
    range: str = "now-6h"


def requests(where: str, statuses: tuple[str, str] | None = None) -> str:
    """Return calls a second that ended, or those with one of these statuses of HTTP or gRPC, as unsummed series."""
    rate = "rate(tidegate_proxy_requests_total"
    if statuses is None:
        return f"{rate}{{{where}}}{RATE})"
    found = (
        f'{rate}{{{where}, protocol="{protocol}", status=~"{which}"}}{RATE})'
        for protocol, which in zip(("http", "grpc"), statuses, strict=True)
    )
    return f"({' or '.join(found)})"


def grown(series: str, time: str = "[$__range]") -> str:
    """Return by how much counters have grown; one that was not there at the beginning has grown from nothing."""
    return f"(increase({series}{time}) > 0 or {series} > 0 unless {series} offset {time[1:-1]})"


def recorded_share(what: str) -> Query:
    """Return the share of calls that went so, as recording rules keep it: models are not summed up each time."""
    return Query(f"tidegate:{what}:rate5m{{{HERE}}} / on ({BY}) tidegate:calls:rate5m{{{HERE}}}", "{{namespace}}")


def quantiles(metric: str, where: str, by: str, legend: str, *of: float) -> tuple[Query, ...]:
    """Return a query for each of these quantiles of a histogram."""
    return tuple(
        Query(f"histogram_quantile({each}, sum by ({BY}, {by}, le) (rate({metric}_bucket{{{where}}}{RATE})))",
              f"p{round(100 * each)} {{{{namespace}}}} {legend}")
        for each in of
    )  # fmt: skip
