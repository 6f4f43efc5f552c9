"""Traces of a few models, each called at its own interval."""

from array import array

from tidegate_eviction.simulate.trace import Trace, TracedModel

GB = 10**9
Called = tuple[int, float, float]
"""Footprint in GB, seconds that a load takes, seconds between two calls."""


def trace_of(hours: float, **models: Called) -> Trace:
    traced = tuple(TracedModel(name, size * GB, load, 0.05) for name, (size, load, _) in models.items())
    calls = sorted(
        (10 + 7 * which + number * pause, which)
        for which, (_, _, pause) in enumerate(models.values())
        for number in range(int(hours * 3600 / pause))
    )
    return Trace(traced, array("d", (at for at, _ in calls)), array("l", (which for _, which in calls)))


LARGE_AND_SMALL = trace_of(
    4, large=(15, 30.0, 700.0), **{f"small-{number}": (1, 2.0, 400.0 + 10 * number) for number in range(8)}
)
"""Nine models, for which 23 GB are enough: a slice of 20 GB and one of 10, each with its own of them."""
