"""How long the first answer of a cold model takes, and how often it is loaded when many want it at once."""

import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from operator import truediv

from lab.bench.report import Found, NotHereError, say

from .goals import Effort
from .plane import RIGHT, Ballast, Plane, infer_path, plane, post

SIZES = 4, 32, 128
"""MiB that cold models hold."""
STAMPEDE_SECONDS = 1.0
"""A load of the model that everybody wants takes so long at least."""
_ROOM_MIB = 4096
"""Nobody has to go."""


def cold(effort: Effort) -> Found:
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
    found = Found({"cold_vs_triton": statistics.median(map(truediv, through, bare))})
    found.add(
        f"first answer, median of {len(ours)} models of {SIZES[0]} to {SIZES[-1]} MiB",
        f"{_ms(through)} through proxy and policy · {_ms(bare)} with bare Triton",
    )
    return found


def stampede(effort: Effort) -> Found:
    """Count the loads of a cold model that is called by many at once, by the policy's metrics and by Triton's log."""
    models = [Ballast(f"wanted-{number}", 4, STAMPEDE_SECONDS) for number in range(effort.stampedes)]
    worst = 0.0
    found = Found()
    with plane(models, _ROOM_MIB, proxies=2) as made:
        for model in models:
            say(f"{effort.callers} callers at once …")
            counted = made.loads_counted()
            answered = _all_at_once(made, model.name, effort.callers)
            loads = made.loads_counted() - counted, made.loads_logged()[model.name]
            worst = max(worst, *loads)
            found.add(
                f"{effort.callers} callers at once, through two proxies",
                f"{answered} answered · loads: {loads[0]:.0f} counted by the policy, {loads[1]} in Triton's log",
            )
            if answered < effort.callers:
                raise NotHereError(f"{effort.callers - answered} of {effort.callers} callers at once got no answer")
    found.figures["loads_per_stampede"] = worst
    return found


def _all_at_once(made: Plane, model: str, callers: int) -> int:
    """Call a model from so many threads; return how many were answered right."""
    ready = threading.Barrier(callers)
    headers = made.headers

    def call(number: int) -> bool:
        ready.wait()
        status, body = post(made.proxies[number % len(made.proxies)].http, infer_path(model), headers)
        return status == 200 and RIGHT in body

    with ThreadPoolExecutor(callers) as pool:
        return sum(pool.map(call, range(callers)))


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:,.0f} ms"
