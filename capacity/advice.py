"""One recommendation for a pool, from its pressures and from a simulation of each remedy."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.definition.models import Model
from stacks.definition.pools import OnDemand, Pool

from .answers import longest_wait
from .pressures import Pressures
from .remedies import FILES_NEAR, NEAR_BYTES_PER_SECOND, PoolUnderReview, Remedy, remedies, staging
from .simulations import Figures, expect, only, setting_of

TARGET: Final = 0.99  # Share of calls that must find their model resident.
ENOUGH: Final = 0.2  # A remedy is enough if it leaves this share of the seconds lost for lack of memory.
FILES_ENOUGH: Final = 0.5  # The same for files near the GPU, which take no GPU memory, so they are tried first.
QUEUE_SHARE: Final = 1.0  # Compute is short from this ratio of queued to computed seconds.
QUEUE_SECONDS: Final = 0.01  # Shorter mean queue times of a call are negligible.
BUSIEST: Final = 0.5  # Share of the time that the replicas may compute if some are given back.
ONE_MODELS: Final = 2 / 3  # If one model has this share of the queue time, more replicas help no other model.
COPIES: Final = 2  # Maximum number of replicas that a hot model is loaded on.


@dataclass(frozen=True)
class Advice:
    """The recommendation, its reason, the change, and the simulated effect: now, and with the change."""

    kind: str
    why: str
    change: Mapping[str, Any] = field(default_factory=dict)
    now: Figures | None = None
    then: Figures | None = None
    remark: str = ""  # A further remark.


def advise(subject: PoolUnderReview, trace: Trace | None, target: float = TARGET) -> Advice:
    """Return the recommendation for a pool. `trace` has the calls of the same time, to its models and others."""
    found, loading = subject.found, subject.pool.loading
    if not found.replicas or not found.calls:
        what = "no call of its models" if found.replicas else "none of its pods"
        return Advice("nothing", f"Prometheus has {what} in this time.")
    mine = None if trace is None else only(trace, [model.name for model in subject.models])
    wait = loading.wait_seconds if isinstance(loading, OnDemand) else 0
    if is_compute_short(found) and found.work.queued_seconds >= found.lost_seconds(wait):
        return _more_computing(subject)
    if not isinstance(loading, OnDemand):
        return Advice("nothing", "Every model is resident, and calls do not queue.")
    if found.warm >= target:
        why = f"{found.warm:.1%} of the calls found their model resident."
        return _fewer(subject, mine, target, why) or Advice("nothing", why)
    if found.busy_for_loads > found.busy_for_room and (advice := _longer_wait(subject, loading, mine)) is not None:
        return advice
    if found.evicted or found.busy_for_room:
        return _more_room(subject, mine)
    return Advice("nothing", "Models were loaded for the first time, and none was evicted for another one.")


def _fewer(subject: PoolUnderReview, trace: Trace | None, target: float, why: str) -> Advice | None:
    """Return advice to give slices back. None if fewer replicas do not hold the target, or cannot be simulated."""
    setting, found = setting_of_pool(subject.pool, subject.models), subject.found
    if setting is None or not trace or subject.pool.autoscaling is not None or not found.work.compute_seconds:
        return None
    count = setting.replicas - 1
    if not count or (computing := found.work.compute_seconds / (found.seconds * count)) > BUSIEST:
        return None
    then = expect(trace, replace(setting, replicas=count), is_running=True)
    if then.share_warm < target or not then.serves_every_model:
        return None
    now = expect(trace, setting, is_running=True)
    given = [each for each in devices.taken(subject.stack) if each.pool == subject.name]
    freed = devices.summary(replace(each, count=each.count // setting.replicas) for each in given) or "a replica"
    remark = f"It frees {freed}. Not simulated: queues. Each replica would compute {computing:.0%} of the time."
    return Advice("fewer replicas", why, subject.change(replicas=count), now, then, remark)


def is_compute_short(found: Pressures) -> bool:
    """Whether calls wait because other calls are computed."""
    work = found.work
    return work.queued_seconds >= QUEUE_SECONDS * found.calls and work.queue_share >= QUEUE_SHARE


def is_memory_short(found: Pressures, target: float = TARGET) -> bool:
    """Whether models are evicted that are called again."""
    return found.warm < target and found.evicted + found.busy_for_room > 0


def _more_computing(subject: PoolUnderReview) -> Advice:
    found, work = subject.found, subject.found.work
    each = work.queued_seconds / found.calls
    why = f"Calls wait {each * 1e3:.0f} ms each in the queue, {work.queue_share:.1f} times their computing time."
    remark = "The simulator does not model queues, so it cannot show the effect."
    if subject.pool.autoscaling is not None:
        bounds = subject.pool.autoscaling.model_dump(mode="json", by_alias=True, exclude_unset=True)
        scaled = subject.change(autoscaling={**bounds, "max": subject.pool.autoscaling.max + 1})
        return Advice("more replicas", why, scaled, remark=remark)
    count = max(1, devices.most_replicas(subject.pool))
    first = max(work.queue_seconds, key=lambda name: work.queue_seconds[name])
    if isinstance(subject.pool.loading, OnDemand) and count >= COPIES:
        share = work.queue_seconds[first] / work.queued_seconds
        if share >= ONE_MODELS:
            remark = (
                f"{share:.0%} of it is {first}'s, which uses at most {COPIES} replicas, however many there are. "
                "Set more instances (instance_group in its config.pbtxt)."
            )
            return Advice("nothing", why, remark=remark)
    return Advice("more replicas", why, subject.change(replicas=count + 1), remark=remark)


def _longer_wait(subject: PoolUnderReview, loading: OnDemand, trace: Trace | None) -> Advice | None:
    """Return advice to wait longer for loads. None if the wait is enough, or the volume is slow: fix that first."""
    found = subject.found
    longest = max((each.load_seconds / each.loads for each in found.models.values() if each.loads), default=0.0)
    wait = longest_wait(longest, subject.stack.platform.proxy.timeouts.request_seconds)
    if wait <= loading.wait_seconds or staging(subject) is not None:
        return None
    why = (
        f"{found.busy_for_loads:,.0f} calls were refused as busy while their model loaded: they wait "
        f"{loading.wait_seconds} s, but the longest load takes {longest:.0f} s."
    )
    now = setting_of_pool(subject.pool, subject.models)
    then = None if now is None else replace(now, wait_seconds=wait)
    return Advice(
        "other limits",
        why,
        subject.change(loading={"waitSeconds": wait}),
        expect(trace, now) if trace and now else None,
        expect(trace, then) if trace and then else None,
    )


def _more_room(subject: PoolUnderReview, trace: Trace | None) -> Advice:
    """Return the cheapest remedy that is enough in the simulation, or the best one if none is."""
    found, setting = subject.found, setting_of_pool(subject.pool, subject.models)
    why = (
        f"{found.evicted:,.0f} evictions for other models, {found.busy_for_room:,.0f} calls refused as busy for lack "
        f"of memory, and {1 - found.warm:.1%} of all calls did not find their model resident."
    )
    if setting is None or not trace:
        reason = "the trace has no calls of it" if setting else "its policy is not installed, or its slice is unknown"
        return Advice("nothing", why, remark=f"The remedies cannot be simulated: {reason}.")
    now = expect(trace, setting)
    # With memory for all models, only first loads cost time.
    least = expect(trace, replace(setting, capacity_bytes=2 * trace.total_bytes + setting.capacity_bytes)).lost_seconds
    tried = [(each, expect(each.trace(trace), each.setting)) for each in remedies(subject, setting)]

    def is_enough(remedy: Remedy, then: Figures) -> bool:
        share = FILES_ENOUGH if remedy.kind == FILES_NEAR else ENOUGH
        return then.lost_seconds <= least + share * max(0.0, now.lost_seconds - least)

    enough = [each for each in tried if is_enough(*each)]

    def cost(one: tuple[Remedy, Figures]) -> tuple[int, int]:
        return (one[0].more_bytes, round(one[1].lost_seconds))

    if now.lost_seconds <= least or not tried:
        return Advice("nothing", why, now=now, remark="In the simulation, nothing is lost for lack of memory.")
    remedy, then = min(enough, key=cost) if enough else min(tried, key=lambda one: one[1].lost_seconds)
    remark = "" if enough else "No remedy is enough by itself. This one helps most."
    if remedy.kind == FILES_NEAR and found.reading is not None:
        rate, near = found.reading.bytes_per_second / 1e6, NEAR_BYTES_PER_SECOND / 1e6
        why = f"{why} Files are read at {rate:,.0f} MB/s, which is {found.reading.share:.0%} of the load time."
        remark = (
            f"Simulated with staged files at {near:,.0f} MB/s. Not simulated: each model's first load still reads "
            "from the volume. The size is that of the footprints, but files may be smaller."
        )
    return Advice(remedy.kind, why, remedy.change, now, then, remark)


def setting_of_pool(pool: Pool, models: Collection[Model]) -> SimulationSetting | None:
    """Return an on-demand pool's simulation setting. None if its policy or its slice's size is unknown here."""
    loading, capacity = pool.loading, devices.capacity_bytes(pool)
    if not isinstance(loading, OnDemand) or capacity is None:
        return None
    pinned = frozenset(model.name for model in models if model.pinned)
    try:
        return setting_of(loading, capacity, max(1, devices.most_replicas(pool)), pinned)
    except ValueError:
        return None
