"""The pressures on a pool: its memory, compute and loads, from the counters of proxies, policies and servers.

The loss of callers is one figure in seconds: their waiting time, plus a whole `waitSeconds` for each call that was
refused as busy. Each pressure has its part of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate_contracts.lease import BusyReason, State

from .samples import PoolSamples
from .triton import QUEUE, Work, server_work

NOT_AT_ONCE_SECONDS = 0.1  # A bucket of the proxy's histogram. Longer waits for a lease are waits for loads or memory.
SLOW_BYTES_PER_SECOND = 250e6  # A volume below this rate is slow. One SATA disk, or an EFS client, reads twice as much.
SLOW_SECONDS = 1.0  # The read rate of shorter loads does not matter.
_SIZES_APART = 1.5  # Minimum ratio of the largest to the smallest model, to separate reading from starting.
FOR_ROOM: Final[tuple[BusyReason, ...]] = ("no-room", "freeing", "unloading", "draining")
FOR_A_LOAD: Final[tuple[BusyReason, ...]] = ("queued", "loading")
"""Reasons of busy calls: lack of memory, or a load that takes longer than the wait or waits for its turn."""


@dataclass(frozen=True)
class ModelUse:
    """The activity of one model in a pool. Seconds, bytes."""

    calls: float = 0.0
    loads: float = 0.0
    load_seconds: float = 0.0  # Sum over its loads, each with the duration of the last one.
    evicted: float = 0.0  # Evictions for lack of memory.
    footprint_bytes: float = 0.0
    queue_seconds: float = 0.0  # Of its calls, in the servers' queues.


@dataclass(frozen=True)
class Pressures:
    """Measurements of one pool in a window. Seconds are sums over all calls."""

    seconds: float  # The window's length.
    replicas: int  # Measured replicas. 0 if there is no measurement.
    models: Mapping[str, ModelUse] = field(default_factory=dict)
    late_calls: float = 0.0  # Calls that waited for a lease.
    waited_seconds: float = 0.0  # Waiting for leases.
    busy: Mapping[str, float] = field(default_factory=dict)  # Calls that were refused as busy, by reason.
    taken: float | None = None  # Mean share of the capacity that models take. None without a policy.
    loading: float = 0.0  # Mean number of models that are loading.
    queued: float = 0.0  # Mean number of models that wait for their turn to load.
    work: Work = field(default_factory=Work)

    @property
    def calls(self) -> float:
        return sum(each.calls for each in self.models.values())

    @property
    def loads(self) -> float:
        return sum(each.loads for each in self.models.values())

    @property
    def load_seconds(self) -> float:
        return sum(each.load_seconds for each in self.models.values())

    @property
    def evicted(self) -> float:
        """Evictions for lack of memory. Each causes another load of a model later."""
        return sum(each.evicted for each in self.models.values())

    @property
    def busy_for_room(self) -> float:
        """Calls that were refused as busy for lack of memory."""
        return sum(self.busy.get(each, 0.0) for each in FOR_ROOM)

    @property
    def busy_for_loads(self) -> float:
        """Calls that were refused as busy, because the load took longer than the wait, or did not start."""
        return sum(self.busy.get(each, 0.0) for each in FOR_A_LOAD)

    @property
    def warm(self) -> float:
        """Share of calls that found their model resident. 1 without calls."""
        return 1 - min(1.0, (self.late_calls + self.busy_for_room + self.busy_for_loads) / max(1.0, self.calls))

    def lost_seconds(self, wait_seconds: float) -> float:
        """Return the loss from loads and lack of memory: waiting time, and a whole wait for each busy call."""
        return self.waited_seconds + (self.busy_for_room + self.busy_for_loads) * wait_seconds

    @property
    def reading(self) -> "Reading | None":
        """The read rate of loads, if the models' sizes allow a measurement."""
        loaded = [each for each in self.models.values() if each.loads and each.load_seconds and each.footprint_bytes]
        return reading([(each.footprint_bytes, each.load_seconds / each.loads, each.loads) for each in loaded])


@dataclass(frozen=True)
class Reading:
    """How fast loads read files."""

    bytes_per_second: float
    share: float  # The part of the load time that grows with the size. The rest is the same for each load.
    seconds: float  # The same part, in seconds of an average load.

    @property
    def slow(self) -> bool:
        """Whether a faster volume would save most of the load time."""
        is_much = self.share >= 0.5 and self.seconds >= SLOW_SECONDS
        return is_much and self.bytes_per_second < SLOW_BYTES_PER_SECOND


def reading(loads: Sequence[tuple[float, float, float]]) -> Reading | None:
    """Return the read rate from loads (bytes, seconds of each, number): least squares, weighted by the number, for
    seconds = start + bytes / rate. None for fewer than three models, similar sizes, or durations that do not grow with
    size."""
    if len(loads) < 3 or max(loads)[0] < _SIZES_APART * min(loads)[0]:
        return None
    many = sum(weight for _, _, weight in loads)
    size = sum(each * weight for each, _, weight in loads) / many
    seconds = sum(each * weight for _, each, weight in loads) / many
    spread = sum(weight * (each - size) ** 2 for each, _, weight in loads)
    slope = sum(weight * (one - size) * (each - seconds) for one, each, weight in loads) / spread
    if slope <= 0 or seconds <= 0:
        return None
    slope = min(slope, seconds / size)  # the start time cannot be negative
    return Reading(1 / slope, slope * size / seconds, slope * size)


def pressures(found: PoolSamples, models: Iterable[str]) -> Pressures:
    """Return the pressures on one pool, which serves these models."""
    calls = found.samples.increase("tidegate_proxy_requests_total", "server", "model")
    loads = found.by_model("tidegate_eviction_model_loads_total")
    sizes, seconds = (
        found.last_of_models(f"tidegate_eviction_model_{each}") for each in ("footprint_bytes", "load_seconds")
    )
    gone = found.at_pods("tidegate_eviction_model_evictions_total", "reason", "model")
    problems = found.at_proxies("tidegate_proxy_problems_total", "type", "reason")
    waits = found.at_proxies("tidegate_proxy_lease_wait_seconds_bucket", "le")
    room = found.of_pods(found.samples.mean("tidegate_eviction_bytes", "pod", "kind"))
    states = found.of_pods(found.samples.mean("tidegate_eviction_models", "pod", "state"))
    work = server_work(found)
    uses = {
        name: ModelUse(
            calls=calls.get((found.server, name), 0.0),
            loads=loads[name],
            load_seconds=loads[name] * seconds[name],
            evicted=gone["room", name] + gone["ahead", name],
            footprint_bytes=sizes[name],
            queue_seconds=work.queue_seconds.get(name, 0.0),
        )
        for name in sorted(models)
    }
    in_time = sum(value for (bound,), value in waits.items() if float(bound) == NOT_AT_ONCE_SECONDS)
    return Pressures(
        seconds=found.samples.seconds,
        replicas=found.replicas("tidegate_eviction_bytes", QUEUE),
        models=uses,
        late_calls=max(waits.values(), default=0.0) - in_time,
        waited_seconds=sum(found.at_proxies("tidegate_proxy_lease_wait_seconds_sum").values()),
        busy={reason: value for (kind, reason), value in problems.items() if kind == "busy"},
        taken=1 - room["free",] / room["capacity",] if room["capacity",] else None,
        loading=states[State.LOADING,],
        queued=states[State.QUEUED,],
        work=work,
    )
