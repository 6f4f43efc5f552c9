"""How many models one Triton can serve, for each that it has room for.

Requests come at random, whether those before are answered or not, on average one in the time that this machine takes
for a first answer of a cold model when nothing else goes on, one or two in a second; how often each model is wanted
follows Zipf's law with the exponent 1.1. A request that is told to come again later counts as not answered.
"""

import random
import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

from lab.bench.proxy.load import post
from lab.bench.report import Figures, say
from rollout.tools.running import repeating

from .goals import Effort
from .plane import REQUEST, RIGHT, Ballast, Plane, infer_path, plane

ZIPF = 1.1
ENOUGH = 0.99
LEAST_PER_SECOND, MOST_PER_SECOND = 1.0, 2.0
EACH_MIB = 32  # What a model is declared to take.
THREADS = 64
_LOOK_SECONDS = 0.2  # Between two looks at Triton's index.


@dataclass(frozen=True)
class Served:
    """What came of it."""

    wanted: list[str]  # The models that were called, one for each request.
    per_second: float  # How many came, on average.
    waits: list[float]  # Seconds of the right answers.
    most: int  # The most models in Triton's index at one time, in whatever state but unloaded.


def measure(effort: Effort) -> Figures:
    """Try the largest number of models first; the figure is that of the first that is served well enough."""
    found = Figures()
    for times in effort.densities:
        say(f"{effort.room * times} models, room for {effort.room} …")
        served = serve(effort.room, times, effort.density_seconds)
        share = len(served.waits) / len(served.wanted)
        found.add(
            f"{effort.room * times} models, room for {effort.room}, {served.per_second:.1f} requests/s",
            f"{share:.1%} of {len(served.wanted)} requests to {len({*served.wanted})} of them answered, "
            f"p50 {_at(served, 50):.2f} s, p99 {_at(served, 99):.1f} s · at most {served.most} in Triton's index",
        )
        if share >= ENOUGH and 0 < served.most <= effort.room:
            found.figures["density"] = times
            break
    else:
        found.figures["density"] = 0
    return found


def serve(room: int, times: int, seconds: float) -> Served:
    """Let requests come for so long, to so many times more models than there is room for; or until too many failed."""
    chance = random.Random(1)
    models = [Ballast(f"m{number:03}", 1, declared_mib=EACH_MIB) for number in range(room * times)]
    weights = list(accumulate(1 / rank**ZIPF for rank in range(1, len(models) + 1)))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, sum(state in ("READY", "LOADING", "UNLOADING") for state in made.states().values()))

    with (
        plane(models, room * EACH_MIB) as made,
        repeating(look, pause=_LOOK_SECONDS),
        ThreadPoolExecutor(THREADS) as pool,
    ):
        headers = made.headers
        per_second = min(MOST_PER_SECOND, max(LEAST_PER_SECOND, 1 / made.first_answer(models[-1].name)))
        most_failed = (1 - ENOUGH) * per_second * seconds
        wanted: list[str] = []
        asked: list[Future[float | None]] = []
        due = time.monotonic()
        end = due + seconds
        while (due := due + chance.expovariate(per_second)) < end:
            time.sleep(max(0.0, due - time.monotonic()))
            wanted.append(chance.choices(models, cum_weights=weights)[0].name)
            asked.append(pool.submit(_call, made, wanted[-1], headers))
            if sum(each.done() and each.result() is None for each in asked) > most_failed:
                break
        waits = [wait for each in asked if (wait := each.result()) is not None]
        return Served(wanted, per_second, waits, most)


def _call(made: Plane, model: str, headers: dict[str, str]) -> float | None:
    began = time.perf_counter()
    status, body = post(made.proxies[0].http, infer_path(model), headers, REQUEST)
    right = status == 200 and RIGHT in body and f'"data":["{model}"]'.encode() in body  # it says its own name
    return time.perf_counter() - began if right else None


def _at(served: Served, percent: int) -> float:
    if len(served.waits) < 2:
        return 0.0
    return statistics.quantiles(served.waits, n=100, method="inclusive")[percent - 1]
