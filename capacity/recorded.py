"""Where samples come from: a Prometheus that is asked, or a folder into which its answers were put before."""

import gzip
import json
import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidegate_eviction.simulate.trace import SimulationError, read_trace, write_trace

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import escaped

from .prometheus import Prometheus, Series, copy_labels, without_copies
from .recording import HOUR, PROXIES, record
from .samples import Recorded, Samples
from .trace import trace_of

SAMPLES_FILE: Final = "samples.json.gz"
TRACE_FILE: Final = "trace.csv.gz"
_OF_PROXIES: Final = "tidegate_proxy_in_flight"  # Which each has from its start on.
_BROKEN: Final = gzip.BadGzipFile, EOFError, zlib.error
_STEPS: Final = 480  # Of one window: 3 minutes of a day.


@dataclass
class Asked:
    """Samples of the last seconds before a Unix time, as they are asked for; what was asked for is remembered."""

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
            # What an exporter of its own says of pods has their names in labels that begin so.
            exported = self.prometheus.match.replace("namespace=", "exported_namespace=")
            query = f"({metric}{{$match}} or {metric}{{{exported}}})[{math.ceil(self.seconds)}s:{step}s]"
            self.known[metric] = without_copies(self.prometheus.ask(query, self.now), self.copies)
        return self.known[metric]


def asked(url: str, match: str, hours: float) -> tuple[Recorded, Asked]:
    """Return what a Prometheus remembers of the last hours, of series with the labels that `match` says."""
    of_this_time = Asked(Prometheus(url, match), hours * HOUR, time.time())
    if not of_this_time.series(_OF_PROXIES):
        nothing = f"{url} has scraped no proxy of Tidegate's with {match} in these {hours:g} hours"
        raise CommandError(f"{nothing}: see MATCH, STACK, HOURS, and `monitoring` in the definition.", WRONG_INPUT)
    trace, why = None, ""
    try:
        trace, _ = trace_of(record(of_this_time.prometheus, hours, of_this_time.now))
    except CommandError as error:
        why = str(error)
    return Recorded(Samples(of_this_time.seconds, of_this_time.series), trace, why), of_this_time


def kept(folder: Path) -> Recorded:
    """Return what was put into a folder. Raises CommandError."""
    file = folder / SAMPLES_FILE
    try:
        with gzip.open(file, "rt", encoding="utf-8") as opened:
            told: Any = json.load(opened)
        known = {
            metric: [Series(each["metric"], [(at, float(value)) for at, value in each["values"]]) for each in found]
            for metric, found in told["metrics"].items()
        }
        seconds, why = float(told["seconds"]), str(told["whyNoTrace"])
    except (*_BROKEN, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CommandError(
            f"{escaped(str(file))} holds no samples as `tidegate advise` keeps them.", WRONG_INPUT
        ) from None
    except OSError as error:
        what = f"{escaped(str(file))}: {error.strerror}"
        raise CommandError(f"{what}. Is that a folder of samples?", WRONG_INPUT) from None
    try:
        trace = read_trace(folder / TRACE_FILE) if (folder / TRACE_FILE).exists() else None
    except SimulationError as error:
        raise CommandError(str(error), WRONG_INPUT) from None
    return Recorded(Samples(seconds, lambda metric: known.get(metric, ())), trace, why)


def keep(recorded: Recorded, of_this_time: Asked, folder: Path) -> None:
    """Put what was asked for into a folder; the same is the same file, byte for byte."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = {
        metric: [
            {"metric": dict(each.labels), "values": [(round(at, 3), f"{value:.12g}") for at, value in each.samples]}
            for each in found
        ]
        for metric, found in sorted(of_this_time.known.items())
    }
    seconds, why = recorded.samples.seconds, recorded.why_no_trace
    text = json.dumps({"seconds": seconds, "whyNoTrace": why, "metrics": metrics})
    (folder / SAMPLES_FILE).write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / TRACE_FILE).unlink(missing_ok=True)  # of another time
    if recorded.trace is not None:
        write_trace(recorded.trace, folder / TRACE_FILE)
