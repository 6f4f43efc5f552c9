"""Small days that are hard for the default eviction rule: long loads, scans, models that find no room.

Each is made from its kind and a seed, has some thousand calls at most, and takes a second or less to simulate.
"""

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tidegate_eviction.simulate.trace import Trace, TracedModel
from tidegate_eviction.simulate.zoo import Workload, generate

_HOUR = 3600.0
_MEGABYTE = 1_000_000
Call = tuple[float, int]


def _trace(calls: Iterable[Call], models: Sequence[tuple[float, float, float]]) -> Trace:
    named = tuple(TracedModel(f"m{n}", round(mb * _MEGABYTE), load, warm) for n, (mb, load, warm) in enumerate(models))
    ordered = sorted(calls)
    return Trace(named, array("d", (at for at, _ in ordered)), array("l", (which for _, which in ordered)))


def _poisson(chance: random.Random, hours: float, gap: float) -> Iterator[float]:
    at = chance.expovariate(1 / gap)
    while at < hours * _HOUR:
        yield round(at, 3)
        at += chance.expovariate(1 / gap)


def _sparse(seed: int) -> Trace:
    """Few calls, at random, to models whose loads take up to two minutes."""
    chance = random.Random(seed)
    models = [(chance.randint(50, 400), chance.uniform(5, 120), chance.uniform(0.05, 1)) for _ in range(14)]
    gaps = [chance.choice([300, 900, 1800, 3600]) * chance.uniform(0.7, 1.4) for _ in models]
    return _trace([(at, n) for n, gap in enumerate(gaps) for at in _poisson(chance, 12, gap)], models)


def _skewed(seed: int) -> Trace:
    """A few models have nearly all calls, and the rest few each; loads take up to a minute."""
    chance = random.Random(seed)
    models = [(chance.randint(50, 400), chance.uniform(10, 60), chance.uniform(0.05, 1)) for _ in range(12)]
    gaps = [20 * (n + 1) ** 2 * chance.uniform(0.7, 1.4) for n in range(12)]
    return _trace([(at, n) for n, gap in enumerate(gaps) for at in _poisson(chance, 8, gap)], models)


def _bursts(seed: int) -> Trace:
    """Nearly all models are called in bursts of some minutes."""
    zoo = Workload(models=14, requests=2500, hours=12, bursty=0.9, nightly=0, footprint_mb=200, load_mb_per_second=15)
    return generate(replace(zoo, seed=seed))


def _nightly(seed: int) -> Trace:
    """Half of the models are called one after the other by night."""
    zoo = Workload(models=14, requests=2500, hours=12, bursty=0.1, nightly=0.5, footprint_mb=200, load_mb_per_second=15)
    return generate(replace(zoo, seed=seed))


def _scans(seed: int) -> Trace:
    """Models that are called one after the other, round and round; their loads may take longer than the pause."""
    chance = random.Random(seed)
    count, pause, load = chance.randint(5, 12), chance.choice([5.0, 20.0, 45.0, 90.0]), chance.choice([3.0, 15.0, 40.0])
    many = int(7e3 / pause) + 90
    calls = [(round(number * pause + chance.uniform(0, 0.2) * pause, 3), number % count) for number in range(many)]
    return _trace(calls, [(100, load, 0.1)] * count)


def _starved(seed: int) -> Trace:
    """Small models in steady use leave no room for a large one, whose callers come now and then."""
    chance = random.Random(seed)
    small = [(chance.randint(80, 120), chance.uniform(2, 10), 0.2) for _ in range(8)]
    models = [*small, (chance.randint(400, 500), chance.uniform(10, 60), 0.5)]
    gaps = [*(chance.uniform(5, 40) for _ in small), chance.uniform(60, 300)]
    return _trace([(at, n) for n, gap in enumerate(gaps) for at in _poisson(chance, 1, gap)], models)


def _long(seed: int) -> Trace:
    """Most loads take longer than callers wait, and calls are not rare."""
    chance = random.Random(1000 + seed)
    models = [
        (
            chance.randint(50, 400),
            chance.uniform(20, 170) if chance.random() < 0.7 else chance.uniform(1, 20),
            chance.uniform(0.05, 1),
        )
        for _ in range(chance.randint(8, 20))
    ]
    common, spread = chance.choice([60, 200, 600]), chance.choice([0.3, 0.8, 1.2])
    gaps = [common * 10 ** chance.uniform(-0.3, spread) for _ in models]
    return _trace([(at, n) for n, gap in enumerate(gaps) for at in _poisson(chance, 8, gap)], models)


def _random(seed: int) -> Trace:
    """Anything: every factor by chance."""
    chance = random.Random(seed)
    count, longest = chance.randint(4, 20), chance.choice([5, 20, 60, 150])
    models = [(chance.randint(20, 500), chance.uniform(1, longest), chance.uniform(0.05, 2)) for _ in range(count)]
    common = chance.choice([60, 300, 1200])
    gaps = [common * 10 ** chance.uniform(-0.7, 0.7) for _ in models]
    return _trace([(at, n) for n, gap in enumerate(gaps) for at in _poisson(chance, 6, gap)], models)


KINDS: Final[dict[str, Callable[[int], Trace]]] = {
    "sparse": _sparse, "long loads": _long, "skewed": _skewed, "bursts": _bursts, "nightly": _nightly,
    "slow scans": _scans, "starved": _starved, "at random": _random,
}  # fmt: skip
"""By what makes them hard: each makes a day from a seed."""
