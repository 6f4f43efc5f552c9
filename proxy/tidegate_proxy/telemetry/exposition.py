"""The counts of calls in Prometheus's text format, in pieces: there are some twenty lines for every model.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, 0.0.4). Names of servers and models have no
sign that would have to be escaped.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate

from .meter import SECONDS, CallCount, Meter

AT_ONCE = 50
"""Calls' counts in one piece, which takes about a millisecond."""
_BOUNDS = [*map(str, SECONDS), "+Inf"]
_REQUESTS = "tidegate_proxy_requests_total"
_SECONDS = "tidegate_proxy_request_seconds"
_RECEIVED = "tidegate_proxy_request_bytes_total"
_SENT = "tidegate_proxy_response_bytes_total"
_Lines = Callable[[str, CallCount], str]


def pieces(meter: Meter) -> Iterator[str]:
    """Return the text, piece by piece; calls that end meanwhile may be in a later piece and not in an earlier one."""
    counts = [
        (f'server="{server}",model="{model}",protocol="{protocol}"', count)
        for (server, model, protocol), count in list(meter.calls.items())
    ]
    for name, kind, help_text, lines in _FAMILIES:
        yield f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
        for start in range(0, len(counts), AT_ONCE):
            yield "".join(lines(labels, count) for labels, count in counts[start : start + AT_ONCE])


def _requests(labels: str, count: CallCount) -> str:
    statuses = list(count.statuses.items())
    return "".join(f'{_REQUESTS}{{{labels},status="{status}"}} {number}\n' for status, number in statuses)


def _seconds(labels: str, count: CallCount) -> str:
    totals = list(accumulate(count.buckets))
    buckets = [
        f'{_SECONDS}_bucket{{{labels},le="{bound}"}} {total}\n' for bound, total in zip(_BOUNDS, totals, strict=True)
    ]
    rest = f"{_SECONDS}_count{{{labels}}} {totals[-1]}\n{_SECONDS}_sum{{{labels}}} {count.seconds!r}\n"
    return "".join(buckets) + rest


def _received(labels: str, count: CallCount) -> str:
    return f"{_RECEIVED}{{{labels}}} {count.bytes_in}\n"


def _sent(labels: str, count: CallCount) -> str:
    return f"{_SENT}{{{labels}}} {count.bytes_out}\n"


_FAMILIES: tuple[tuple[str, str, str, _Lines], ...] = (
    (_REQUESTS, "counter", "Calls that ended.", _requests),
    (_SECONDS, "histogram", "Seconds that calls took.", _seconds),
    (_RECEIVED, "counter", "Bytes of request bodies.", _received),
    (_SENT, "counter", "Bytes of answers' bodies.", _sent),
)
