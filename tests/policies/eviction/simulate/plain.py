from array import array
from collections.abc import Sequence

from tidegate_eviction.simulate.trace import Trace, TracedModel


def trace_of(requests: Sequence[tuple[float, int]], *models: tuple[int, float, float]) -> Trace:
    traced = tuple(TracedModel(f"m{number}", *model) for number, model in enumerate(models))
    return Trace(traced, array("d", (time for time, _ in requests)), array("l", (which for _, which in requests)))
