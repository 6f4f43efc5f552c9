"""What a Prometheus has of the last hours: samples of each metric that advice needs, and the trace of the calls."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stacks.command import WRONG_INPUT, CommandError

from .prometheus import Prometheus, Series, copy_labels, without_copies
from .recording import PROXIES, record, seconds_of
from .samples import Recorded, Samples
from .trace import trace_of

_OF_PROXIES: Final = "tidegate_proxy_in_flight"  # Which each has from its start on.
_STEPS: Final = 480  # Of one window: 3 minutes of a day.


@dataclass
class _Window:
    """The last seconds before a Unix time; each metric is queried once."""

    prometheus: Prometheus
    seconds: float
    now: float
    known: dict[str, Sequence[Series]] = field(default_factory=dict)  # By metric.
    copies: frozenset[str] = frozenset()  # Labels by which copies differ.

    def __post_init__(self) -> None:
        """Find out whether the series of the proxies are there several times. Raises CommandError."""
        self.copies = copy_labels(self.prometheus.ask(PROXIES, self.now))

    def series(self, metric: str) -> Sequence[Series]:
        """Return the samples of a metric. Raises CommandError."""
        if metric not in self.known:
            step = max(1, math.ceil(self.seconds / _STEPS))
            # Exporters of pods' metrics have the pods' names in labels that begin with `exported_`.
            exported = self.prometheus.match.replace("namespace=", "exported_namespace=")
            query = f"({metric}{{$match}} or {metric}{{{exported}}})[{math.ceil(self.seconds)}s:{step}s]"
            self.known[metric] = without_copies(self.prometheus.ask(query, self.now), self.copies)
        return self.known[metric]


def read_samples(url: str, match: str, hours: float) -> Recorded:
    """Return what a Prometheus remembers of the last hours, of series with the labels that `match` says."""
    window = _Window(Prometheus(url, match), seconds_of(hours), time.time())
    if not window.series(_OF_PROXIES):
        nothing = f"{url} has scraped no proxy of Tidegate's with {match} in these {hours:g} hours"
        raise CommandError(
            f"{nothing}: see --match, --stack, --hours, and `monitoring` in the definition.", WRONG_INPUT
        )
    trace, why = None, ""
    try:
        trace, _ = trace_of(record(window.prometheus, hours, window.now))
    except CommandError as error:
        why = str(error)
    return Recorded(Samples(window.seconds, window.series), trace, why)
