"""What leases and loads cost callers: answers of warm models and of cold ones, and loads that many want at once."""

import http.client
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from operator import truediv
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.bench.proxy.contestants import cores
from lab.bench.proxy.load import Call, answer, load, post
from lab.bench.report import Figures, NotHereError, say, turns
from lab.local_plane.environment import ON_DEMAND, PRELOAD
from rollout.tools.running import repeating
from tests.policies.eviction.rigs.caller import Holder

from .goals import Effort
from .plane import CALL_SECONDS, REQUEST, RIGHT, Ballast, Plane, infer_path, plane

WARM = Ballast("warm", 4, declared_mib=32)
CONNECTIONS = 32
PAUSE = 0.004  # Seconds between the requests whose slowest hundredth is looked at: they are no load by themselves.
CHURNED = tuple(Ballast(f"churned-{number}", 32, 0.2, declared_mib=64) for number in range(2))
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


def while_loading(effort: Effort) -> Figures:
    """Measure the slowest hundredth of a warm model's answers while another is loaded and unloaded, and while none is.

    The process that loads holds leases of its own, and gives them back at once.
    """
    with plane([WARM, *CHURNED], 32 + 64 + 16, residency_factor=0) as made:
        made.first_answer(WARM.name)
        holder = Holder(made.policy, "churn")

        def churn() -> None:
            for model in CHURNED:
                holder.acquire(model.name)
                holder.release(model.name)

        quiet, loud, loads = [], [], 0
        _slowest(made, 1.0)
        for run in range(effort.runs):
            say(f"warm model while others load: run {run + 1} of {effort.runs} …")
            quiet.append(_slowest(made, effort.seconds))
            before = made.loads_counted()
            with repeating(churn):
                loud.append(_slowest(made, 2 * effort.seconds))
            loads += round(made.loads_counted() - before)
    if not loads:
        raise NotHereError("nothing was loaded meanwhile")
    found = Figures({"warm_p99_while_loading": statistics.median(loud) / statistics.median(quiet)})
    found.add(
        "p99 of a warm model, one call at a time",
        f"quiet {statistics.median(quiet) * 1e3:.1f} ms · {statistics.median(loud) * 1e3:.1f} ms during {loads} loads",
    )
    return found


def _slowest(made: Plane, seconds: float) -> float:
    """Call the warm model again and again; return its p99, in seconds."""
    asking = http.client.HTTPConnection(made.proxies[0].http, timeout=CALL_SECONDS)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(took) < 2:
        asking.request("POST", infer_path(WARM.name), REQUEST, made.headers)
        found = asking.getresponse()
        body = found.read()
        took.append(time.perf_counter() - began)
        if found.status != 200 or RIGHT not in body:
            raise NotHereError(f"the warm model answers {found.status}: {body[:300].decode(errors='replace')}")
        time.sleep(PAUSE)
    asking.close()
    return statistics.quantiles(took, n=100, method="inclusive")[98]


SIZES = 4, 32, 128  # MiB that cold models hold.
STAMPEDE_SECONDS = 1.0  # A load of the model that everybody wants takes so long at least.
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


def stampede(effort: Effort) -> Figures:
    """Count the loads of a cold model that is called by many at once, by the policy's metrics and by Triton's log."""
    models = [Ballast(f"wanted-{number}", 4, STAMPEDE_SECONDS) for number in range(effort.stampedes)]
    worst = 0.0
    found = Figures()
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
        status, body = post(made.proxies[number % len(made.proxies)].http, infer_path(model), headers, REQUEST)
        return status == 200 and RIGHT in body

    with ThreadPoolExecutor(callers) as pool:
        return sum(pool.map(call, range(callers)))


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:,.0f} ms"
