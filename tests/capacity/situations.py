"""Made-up definitions, samples and traces of pools in trouble."""

import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate_eviction.simulate.trace import Trace, TracedModel

from capacity.prometheus import Series
from capacity.samples import Samples
from stacks.stack import Definition
from stacks.validate import read_definition

from .definition import Tree, pool, tree_of, write

SERVER, POOL = "ondemand", "main"
POD = f"{SERVER}-{POOL}-0"
SECONDS = 3600.0
SMALL = dict.fromkeys(("ant", "bee", "cat", "dog", "emu"), "3G")
CUTS = ({"1g.10gb": 3, "2g.20gb": 2},)


def tree(
    sizes: Mapping[str, str] = SMALL, profile: str = "1g.10gb", cuts: Sequence[dict[str, int]] = CUTS,
    pinned: str = "", **loading: object,
) -> Tree:  # fmt: skip
    """Return a definition with one on-demand pool, and models of these footprints."""
    one = pool(profile, POOL)
    one["loading"] |= {"policy": "lru-idle", "idleSeconds": 60, "waitSeconds": 20} | loading
    models: list[Tree] = [{"name": name, "server": SERVER, "footprint": size} for name, size in sizes.items()]
    for model in models:
        model["pinned"] = model["name"] == pinned
    return tree_of([one], models, list(cuts))


def definition(folder: Path, *given: Any, **more: Any) -> Definition:
    return read_definition(write(folder, tree(*given, **more)))


@dataclass
class Made:
    """Samples, added one after the other: counters that grew, gauges that stayed."""

    series: dict[str, list[Series]] = field(default_factory=dict)

    def grew(self, metric: str, by: float, **labels: str) -> None:
        self._add(metric, labels, [(0.0, 7.0), (SECONDS, 7.0 + by)])

    def was(self, metric: str, value: float, **labels: str) -> None:
        self._add(metric, labels, [(0.0, value), (SECONDS, value)])

    def _add(self, metric: str, labels: Mapping[str, str], samples: Sequence[tuple[float, float]]) -> None:
        self.series.setdefault(metric, []).append(Series(dict(labels), samples))

    def samples(self) -> Samples:
        return Samples(SECONDS, lambda metric: self.series.get(metric, []))


def calls(made: Made, many: Mapping[str, float], late: float = 0.0, waited: float = 0.0) -> None:
    """Add calls of models. Some were late, and waited for so many seconds together."""
    for name, number in many.items():
        made.grew("tidegate_proxy_requests_total", number, server=SERVER, model=name, protocol="http", status="200")
    here = {"server": SERVER, "pool": POOL}
    made.grew("tidegate_proxy_lease_wait_seconds_bucket", 3.0, **here, le="0.1")
    made.grew("tidegate_proxy_lease_wait_seconds_bucket", 3.0 + late, **here, le="+Inf")
    made.grew("tidegate_proxy_lease_wait_seconds_sum", waited, **here)
    made.was("tidegate_eviction_bytes", 9e9, pod=POD, kind="capacity")
    made.was("tidegate_eviction_bytes", 1e9, pod=POD, kind="free")


def loads(made: Made, name: str, number: float, seconds: float, size: float, evicted: float = 0.0) -> None:
    """Add loads of a model of so many bytes, and its evictions for others."""
    made.grew("tidegate_eviction_model_loads_total", number, pod=POD, model=name)
    made.was("tidegate_eviction_model_load_seconds", seconds, pod=POD, model=name)
    made.was("tidegate_eviction_model_footprint_bytes", size, pod=POD, model=name)
    made.grew("tidegate_eviction_model_evictions_total", evicted, pod=POD, model=name, reason="room")


def busy(made: Made, reason: str, number: float) -> None:
    labels = {"server": SERVER, "pool": POOL, "type": "busy", "reason": reason, "replica": "10.0.0.1"}
    made.grew("tidegate_proxy_problems_total", number, **labels)


def work(made: Made, name: str, queued: float, computed: float) -> None:
    made.grew("nv_inference_queue_duration_us", queued * 1e6, pod=POD, model=name, version="1")
    made.grew("nv_inference_compute_infer_duration_us", computed * 1e6, pod=POD, model=name, version="1")


def trace(models: Mapping[str, tuple[int, float]], turns: int, gap: float) -> Trace:
    """Return calls of models (bytes, seconds of a load), so many seconds apart. Each turn has all models in a random
    order, so that the calls of none are regular."""
    made = tuple(TracedModel(name, size, seconds, 0.05) for name, (size, seconds) in models.items())
    chance = random.Random(1)
    which = [each for _ in range(turns) for each in chance.sample(range(len(made)), len(made))]
    return Trace(made, array("d", (place * gap for place in range(len(which)))), array("l", which))
