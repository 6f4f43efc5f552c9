"""Synthetic traces of models and requests, generated from a seed.

The use of models follows Zipf's law. Most requests are random, more by day than by night. Some models are called in
bursts, some only by a nightly batch, and some by timers. Footprints are log-normal, as file sizes are. A load takes a
constant time, plus a time in proportion to the footprint, at a rate that differs between models.
"""

import math
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from .trace import MEGABYTE, SimulationError, Trace, TracedModel

DAY_SECONDS = 24 * 3600.0
BUSIEST_SECOND = 14 * 3600.0
NIGHT_SECONDS = 1 * 3600.0, 3 * 3600.0
_TIMERS = 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0


@dataclass(frozen=True)
class Workload:
    """The parameters of a synthetic trace. `generate --help` and the module's docstring explain them."""

    models: int = 40
    requests: int = 20_000
    hours: float = 24.0
    zipf: float = 1.1
    diurnal: float = 0.6
    bursty: float = 0.25
    nightly: float = 0.1
    periodic: float = 0.0
    footprint_mb: float = 400.0
    spread: float = 1.0
    load_mb_per_second: float = 200.0
    warm_ms: float = 60.0
    seed: int = 0


def generate(zoo: Workload) -> Trace:
    """Generate a trace. The same parameters give the same trace. Raises SimulationError if it has no calls."""
    chance = random.Random(zoo.seed)
    models = tuple(_model(zoo, number, chance) for number in range(zoo.models))
    shares = [1 / rank**zoo.zipf for rank in range(1, zoo.models + 1)]
    chance.shuffle(shares)  # So use is independent of order and size.
    every = zoo.requests / sum(shares)
    nightly, bursty, timed = (round(share * zoo.models) for share in (zoo.nightly, zoo.bursty, zoo.periodic))
    requests: list[tuple[float, int]] = []
    for number, share in enumerate(shares):
        count = every * share
        if number < nightly:
            times = _nights(zoo, count, chance)
        elif number < nightly + bursty:
            times = _bursts(zoo, count, chance)
        elif number < nightly + bursty + timed:
            times = _timer(zoo, count, chance)
        else:
            times = _days(zoo, count, chance)
        requests.extend((round(time, 3), number) for time in times)
    requests.sort()
    if not requests:
        raise SimulationError(
            f"The generated trace has none of its {zoo.requests} requests. Increase --requests, or change --seed."
        )
    return Trace(models, array("d", (time for time, _ in requests)), array("l", (which for _, which in requests)))


def _model(zoo: Workload, number: int, chance: random.Random) -> TracedModel:
    megabytes = zoo.footprint_mb * math.exp(chance.gauss(0, zoo.spread))
    load = 0.5 + megabytes / zoo.load_mb_per_second * math.exp(chance.gauss(0, 0.7))
    warm = zoo.warm_ms * math.exp(chance.gauss(0, 1))
    footprint = max(1, round(megabytes, 3)) * MEGABYTE
    name = f"model-{number:0{len(str(zoo.models - 1))}}"
    return TracedModel(name, round(footprint), round(load, 3), round(warm / 1e3, 3))


def _days(zoo: Workload, count: float, chance: random.Random) -> Iterator[float]:
    """Yield random times, more by day than by night (thinning, Lewis and Shedler 1979)."""
    most, time = 1 + zoo.diurnal, 0.0
    end = zoo.hours * 3600
    while (time := time + chance.expovariate(count * most / end)) < end:
        day = 1 + zoo.diurnal * math.cos(2 * math.pi * (time - BUSIEST_SECOND) / DAY_SECONDS)
        if chance.random() * most < day:
            yield time


def _bursts(zoo: Workload, count: float, chance: random.Random) -> Iterator[float]:
    """Yield times in a few bursts of some minutes each, more by day than by night."""
    end = zoo.hours * 3600
    many = max(1.0, min(count / 5, zoo.hours / 3))
    for begin in _days(zoo, many, chance):
        seconds = chance.expovariate(1 / 600)
        for _ in range(round(chance.expovariate(many / count))):
            if (time := begin + chance.random() * seconds) < end:
                yield time


def _timer(zoo: Workload, count: float, chance: random.Random) -> Iterator[float]:
    """Yield times of a timer with one of the usual periods: each up to two seconds late, with one to three calls."""
    end, calls = zoo.hours * 3600, chance.randint(1, 3)
    period = min(_TIMERS, key=lambda seconds: abs(math.log(seconds * count / calls / end)))
    time = chance.random() * period
    while time < end - 3:
        late = 2 * chance.random()
        yield from (time + late + 0.3 * number for number in range(calls))
        time += period


def _nights(zoo: Workload, count: float, chance: random.Random) -> Iterator[float]:
    """Yield times in one pass each night, evenly spaced."""
    nights = max(1, math.ceil(zoo.hours / 24))
    begins, ends = NIGHT_SECONDS
    each = max(1, round(count / nights))
    for night in range(nights):
        begin = begins + night * DAY_SECONDS + chance.random() * (ends - begins) / 2
        pause = min((ends - begins) / 2 / each, 5.0)
        yield from (time for number in range(each) if (time := begin + number * pause) < zoo.hours * 3600)
