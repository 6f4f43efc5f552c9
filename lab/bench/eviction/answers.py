"""What leases and loads cost callers: answers of warm models and of cold ones, and loads that many want at once."""

import statistics
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.bench.proxy.contestants import cores
from lab.bench.proxy.load import Call, answer, load
from lab.bench.report import Figures, say, turns
from lab.local_plane.environment import ON_DEMAND, PRELOAD

from .plane import REQUEST, Ballast, Plane, infer_path, plane


@dataclass(frozen=True)
class Effort:
    """How long, how often, how many."""

    runs: int  # Turns that each side has.
    seconds: float  # How long a turn is.
    cold_models: int


FULL: Final = Effort(5, 2.0, 8)
QUICK: Final = Effort(1, 1.0, 1)

WARM = Ballast("warm", 4)
CONNECTIONS = 32
"""There is room for one of them, so that each load is also an unload."""


def against_preloaded(effort: Effort) -> Figures:
    """Measure requests/s through the proxy with a lease and without, of the same model on the same Triton, in turns."""
    use = cores()
    found = Figures()
    with (
        plane([WARM], 256, cores=(use.measured, use.rest)) as made,
        TemporaryDirectory(prefix="tidegate-bench-") as folder,
    ):
        made.first_answer(WARM.name)
        rates: dict[str, list[float]] = {ON_DEMAND: [], PRELOAD: []}
        work: dict[str, list[float]] = {ON_DEMAND: [], PRELOAD: []}
        for run, name in turns([*rates], effort.runs):
            say(f"warm model, {name}: run {run + 1} of {effort.runs} …")
            call = Call(infer_path(WARM.name, name), REQUEST, made.headers)
            rate, microseconds = _turn(made, call, effort.seconds if run >= 0 else 1.0, use.rest, Path(folder))
            if run >= 0:
                rates[name].append(rate)
                work[name].append(microseconds)
    ratio = statistics.median(map(truediv, rates[ON_DEMAND], rates[PRELOAD]))
    found.figures["warm_vs_preloaded"] = ratio
    sides = (
        f"{name} {statistics.median(rates[name]):,.0f}/s ({statistics.median(work[name]):.0f} µs)" for name in rates
    )
    found.add(f"warm model, {CONNECTIONS} connections (the proxy's work)", f"{' · '.join(sides)} · {ratio:.3f}")
    return found


def _turn(made: Plane, call: Call, seconds: float, core: int, folder: Path) -> tuple[float, float]:
    """Return requests a second, and the proxy's processor time for a request in µs."""
    where, process = made.proxies[0].http, made.proxies[0].process
    answer(where, call)
    before = process.processor_seconds()
    found = load(where, call, seconds, CONNECTIONS, core, folder)
    return found.per_second, (process.processor_seconds() - before) / found.requests * 1e6


SIZES = 4, 32, 128  # MiB that cold models hold.
_ROOM_MIB = 4096  # Nobody has to go.


def cold(effort: Effort) -> Figures:
    """Measure first answers through proxy and policy, and those of bare load and infer on the same Triton, in turns.

    Each model is held against one just like it, next to it in time; the figure is the median of these ratios.
    """
    sizes = [SIZES[number % len(SIZES)] for number in range(effort.cold_models)]
    ours = [Ballast(f"cold-{number}", size) for number, size in enumerate(sizes)]
    theirs = [Ballast(f"bare-{number}", size) for number, size in enumerate(sizes)]
    warm_up = Ballast("first"), Ballast("first-bare")
    through, bare = [], []
    with plane([*ours, warm_up[0]], _ROOM_MIB, [*theirs, warm_up[1]]) as made:
        made.first_answer(warm_up[0].name)  # the proxy's connections, Triton's shared memory, the disk's caches
        made.bare_answer(warm_up[1].name)
        made.unload(warm_up[1].name)
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            say(f"cold model {number + 1} of {len(ours)} …")
            if number % 2:
                through.append(made.first_answer(mine.name))
            bare.append(made.bare_answer(other.name))
            made.unload(other.name)
            if not number % 2:
                through.append(made.first_answer(mine.name))
    found = Figures({"cold_vs_triton": statistics.median(map(truediv, through, bare))})
    found.add(
        f"first answer, median of {len(ours)} models of {SIZES[0]} to {SIZES[-1]} MiB",
        f"{_ms(through)} through proxy and policy · {_ms(bare)} with bare Triton",
    )
    return found


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:,.0f} ms"
