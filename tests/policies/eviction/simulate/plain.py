"""Traces of few words, and an LRU cache of models, simulated once more in the simplest way."""

from array import array
from collections.abc import Sequence

from tidegate_eviction.simulate.trace import Trace, TracedModel


def trace_of(requests: Sequence[tuple[float, int]], *models: tuple[int, float, float]) -> Trace:
    traced = tuple(TracedModel(f"m{number}", *model) for number, model in enumerate(models))
    return Trace(traced, array("d", (time for time, _ in requests)), array("l", (which for _, which in requests)))


def plainly(trace: Trace, capacity: int, idle: float) -> tuple[int, float]:
    """Simulate LRU: loads take no time, a request occupies its model for `warm_seconds`, who finds no room is busy.

    Victims that are not needed after all are spared, the last ones first. Returns who was busy, and seconds of loading.
    """
    resident: set[int] = set()
    idle_since: dict[int, float] = {}
    busy, load_seconds, used = 0, 0.0, 0
    size = [model.footprint_bytes for model in trace.models]
    for now, which in trace.requests():
        model = trace.models[which]
        if which not in resident:
            needed = used + model.footprint_bytes - capacity
            victims: list[int] = []
            may_go = [each for each in resident if now - idle_since[each] >= idle]
            for each in sorted(may_go, key=lambda each: (idle_since[each], trace.models[each].name)):
                if sum(size[victim] for victim in victims) < needed:
                    victims.append(each)
            for each in reversed(victims.copy()):
                if sum(size[victim] for victim in victims) - size[each] >= needed:
                    victims.remove(each)
            freed = sum(size[victim] for victim in victims)
            if freed < needed:
                busy += 1
                continue
            resident = resident - {*victims} | {which}
            used += model.footprint_bytes - freed
            load_seconds += model.load_seconds
        idle_since[which] = max(idle_since.get(which, 0.0), now + model.warm_seconds)
    return busy, load_seconds
