"""The last hours of a Prometheus: samples of each metric for advice, and the trace of the calls."""

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

_OF_PROXIES: Final = "tidegate_proxy_in_flight"  # Each proxy has it from its start.
_STEPS: Final = 480  # In one window: every 3 minutes of a day.


@dataclass
class _Window:
    """A window that ends at a Unix time. Each metric is queried once."""

    prometheus: Prometheus
    seconds: float
    now: float
    known: dict[str, Sequence[Series]] = field(default_factory=dict)  # By metric.
    copies: frozenset[str] = frozenset()  # Labels in which copies differ.

    def __post_init__(self) -> None:
        """Find copies of the proxies' series. Raises CommandError."""
        self.copies = copy_labels(self.prometheus.query(PROXIES, self.now))

    def series(self, metric: str) -> Sequence[Series]:
        """Return the samples of a metric. Raises CommandError."""
        if metric not in self.known:
            step = max(1, math.ceil(self.seconds / _STEPS))
            # Exporters that run elsewhere put the pods' labels into labels that begin with `exported_`.
            exported = self.prometheus.match.replace("namespace=", "exported_namespace=")
            query = f"({metric}{{$match}} or {metric}{{{exported}}})[{math.ceil(self.seconds)}s:{step}s]"
            self.known[metric] = without_copies(self.prometheus.query(query, self.now), self.copies)
        return self.known[metric]


def read_samples(url: str, match: str, hours: float) -> Recorded:
    """Return the samples of the last hours, of series that `match` selects."""
    window = _Window(Prometheus(url, match), seconds_of(hours), time.time())
    if not window.series(_OF_PROXIES):
        nothing = f"{url} has no samples of a Tidegate proxy with {match} in these {hours:g} hours"
        do = "Check --match, --stack, --hours, and `monitoring` in the definition"
        raise CommandError(f"{nothing}. {do}.", WRONG_INPUT)
    trace, why = None, ""
    try:
        trace, _ = trace_of(record(window.prometheus, hours, window.now))
    except CommandError as error:
        why = str(error)
    return Recorded(Samples(window.seconds, window.series), trace, why)
