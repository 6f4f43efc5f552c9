"""Remedies for a pool that is short of memory: each with a change of the definition, and its simulation."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate_contracts.eviction import STAGED_SHARE
from tidegate_eviction.policies import registry
from tidegate_eviction.simulate.engine import SimulationSetting
from tidegate_eviction.simulate.trace import Trace

from stacks import devices
from stacks.definition.base import byte_count
from stacks.definition.gpu_products import gpu_product
from stacks.definition.models import Model
from stacks.definition.placement import CpuPlacement, DraPlacement, MigPlacement
from stacks.definition.pools import OnDemand, Pool, Staging
from stacks.definition.servers import Server
from stacks.stack import Stack

from .overlay import size_text
from .pressures import Pressures

Tree = Mapping[str, Any]
_MOST_TRIED = 3  # Models to try pinning.
_MEBIBYTE = 1 << 20
FILES_NEAR: Final = "files near the GPU"
NEAR_BYTES_PER_SECOND: Final = 1e9  # Simulated rate of staged files: a third of what one NVMe disk reads.
SLICES = (MigPlacement, DraPlacement)
_USUAL: Final = tuple(f"{compute}g" for compute in (2, 3))  # Preferred, if two profiles have the same size.


@dataclass(frozen=True)
class PoolUnderReview:
    """A pool with its measurements."""

    stack: Stack
    path: tuple[str | int, ...]  # The pool's place in the stack's definition.
    server: Server
    pool: Pool
    found: Pressures

    @property
    def name(self) -> str:
        return f"{self.server.name}/{self.pool.name}"

    @property
    def models(self) -> tuple[Model, ...]:
        return self.stack.models_of(self.server, self.pool)

    @property
    def slice_bytes(self) -> int:
        return devices.memory_bytes(self.pool, self.stack.data_plane.gpus) or devices.capacity_bytes(self.pool) or 0

    def footprint_bytes(self, name: str) -> float:
        """Return a model's memory: declared or measured, whichever is more."""
        declared = next((each.footprint for each in self.models if each.name == name), None)
        return max(byte_count(declared) if declared else 0, self.found.models[name].footprint_bytes)

    def change(self, **keys: Any) -> Tree:
        """Return these keys of the pool as an overlay."""
        return {"servers": [{"name": self.server.name, "pools": [{"name": self.pool.name, **keys}]}]}

    def of_model(self, name: str, **keys: Any) -> Tree:
        """Return these keys of a model as an overlay."""
        return {"models": [{"name": name, **keys}]}


@dataclass(frozen=True)
class Remedy:
    """One possible change."""

    kind: str
    change: Tree
    setting: SimulationSetting
    more_bytes: int = 0  # Additional memory of slices, or of pods on CPUs.
    loads: float = 1.0  # Load time relative to today's.

    def trace(self, now: Trace) -> Trace:
        """Return the trace with the new load times."""
        models = (replace(model, load_seconds=model.load_seconds * self.loads) for model in now.models)
        return replace(now, models=tuple(models))


def remedies(subject: PoolUnderReview, now: SimulationSetting) -> Iterator[Remedy]:
    """Yield the possible changes, cheapest first."""
    pool, found = subject.pool, subject.found
    assert isinstance(pool.loading, OnDemand)
    for model in sorted(now.pinned):
        yield Remedy(f"unpin {model}", subject.of_model(model, pinned=False), replace(now, pinned=now.pinned - {model}))
    yield from _other_limits(subject, now)
    if found.reading is not None and (change := staging(subject)) is not None:
        saved = found.reading.share * (1 - found.reading.bytes_per_second / NEAR_BYTES_PER_SECOND)
        yield Remedy(FILES_NEAR, change, now, loads=1 - saved)
    used = sorted(found.models, key=lambda name: found.models[name].evicted, reverse=True)
    for model in [each for each in used if each not in now.pinned and found.models[each].evicted][:_MOST_TRIED]:
        yield Remedy(f"pin {model}", subject.of_model(model, pinned=True), replace(now, pinned=now.pinned | {model}))
    for keys, capacity, size in _larger(subject, now.capacity_bytes):
        more = (size - subject.slice_bytes) * now.replicas
        yield Remedy("a larger slice", subject.change(**keys), replace(now, capacity_bytes=capacity), more)
    if pool.autoscaling is None:
        for count in (now.replicas + 1, now.replicas + 2):
            more = subject.slice_bytes * (count - now.replicas)
            yield Remedy("more replicas", subject.change(replicas=count), replace(now, replicas=count), more)


def _other_limits(subject: PoolUnderReview, now: SimulationSetting) -> Iterator[Remedy]:
    """Yield the other built-in policies, and a shorter idle limit."""
    loading = subject.pool.loading
    assert isinstance(loading, OnDemand)
    if loading.policy not in registry.BUILT_IN:
        return  # a custom policy was chosen on purpose
    shortest = {"idleSeconds": loading.lease_seconds}
    tried: tuple[Tree, ...] = ({"policy": "break-even"}, {"policy": "cost-aware", **shortest}, shortest)
    for limits in tried:
        policy = registry.BUILT_IN[limits.get("policy", loading.policy)]
        idle = limits.get("idleSeconds", loading.idle_seconds)
        if (policy.name, idle) != (loading.policy, loading.idle_seconds):
            yield Remedy("other limits", subject.change(loading=limits), replace(now, policy=policy, idle_seconds=idle))


def staging(subject: PoolUnderReview) -> Tree | None:
    """Return the change that stages the files of all called models near the GPU, as large as their footprints. None if
    models are not loaded repeatedly from a slow volume, or if files are near already."""
    read = subject.found.reading
    if read is None or not read.slow or not subject.found.evicted:
        return None
    pool, called = subject.pool, [name for name, each in subject.found.models.items() if each.calls]
    part, whole = STAGED_SHARE
    size = math.ceil(sum(map(subject.footprint_bytes, called)) * whole / part / _MEBIBYTE)
    tier = {"kind": "disk", "size": size_text(size * _MEBIBYTE)}
    assert isinstance(pool.loading, OnDemand)
    loading = pool.loading.model_copy(update={"staging": Staging.model_validate(tier)})
    is_far = subject.stack.staging(subject.server, pool.model_copy(update={"loading": loading})) is not None
    return subject.change(loading={"staging": tier}) if is_far and pool.loading.staging is None else None


def _profiles(subject: PoolUnderReview) -> dict[str, int]:
    """Return the MIG profiles of the pool's GPUs with their bytes, smallest first. If several profiles have the same
    size, prefer one into which the data plane's GPUs are cut."""
    placement = subject.pool.placement
    labels = [getattr(placement, "product", None), *(group.product for group in subject.stack.data_plane.gpus)]
    product = next((found for label in labels if label and (found := gpu_product(label))), None)
    groups = subject.stack.data_plane.gpus
    there = {profile for group in groups for _, layout in group.layouts for profile in layout.slices}
    sizes: dict[int, str] = {}
    for each in sorted(product.plain if product else (), key=lambda each: (each in there, each.startswith(_USUAL))):
        assert product is not None
        sizes[product.slice_bytes(each)] = each
    return {sizes[size]: size for size in sorted(sizes)}


def _larger(subject: PoolUnderReview, capacity: int) -> Iterator[tuple[Tree, int, int]]:
    """Yield keys of the pool with a larger slice, its capacity, and the slice's bytes."""
    pool, today = subject.pool, subject.slice_bytes
    assert isinstance(pool.loading, OnDemand)
    if isinstance(pool.placement, CpuPlacement):
        memory = {"memory": size_text(byte_count(pool.resources.memory) + capacity)}
        kept = {"loading": {"capacity": size_text(2 * capacity)}} if pool.loading.capacity else {}
        yield {**kept, "resources": memory}, 2 * capacity, today + capacity
    elif isinstance(pool.placement, SLICES):
        for profile, size in _profiles(subject).items():
            if size > today:
                grown = capacity * size // today
                kept = {"loading": {"capacity": size_text(grown)}} if pool.loading.capacity else {}
                yield {**kept, "placement": {"profile": profile}}, grown, size
