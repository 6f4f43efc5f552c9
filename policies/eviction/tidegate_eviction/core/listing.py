"""What sits in a slice, as people and proxies see it."""

import math

from tidegate_contracts import lease

from ..states import State
from .model import Model
from .pool import Pool


def listing(pool: Pool, incarnation: str, now: float) -> lease.Listing:
    """Return every model, by name, and the room they take together."""
    room = pool.room
    loading = sum(room.size(model.work.pieces) for model in pool.loads.values() if model.work is not None)
    return lease.Listing(
        incarnation=incarnation,
        policy=pool.rules.policy.name,
        capacity_bytes=pool.rules.capacity_bytes,
        resident_bytes=room.total - loading - room.pending,
        loading_bytes=loading,
        freeing_bytes=room.pending,
        leaked_bytes=pool.memory.leaked,
        free_bytes=max(0, pool.free),
        models=tuple(_listed(pool, pool.models[name], now) for name in sorted(pool.models)),
    )


def _listed(pool: Pool, model: Model, now: float) -> lease.Listed:
    resident = model.state is State.RESIDENT
    why = model.why
    if not why and model.failures.count:
        why = model.failures.why
    evictable = resident and model.at < math.inf
    return lease.Listed(
        model=model.name,
        state=model.state.value,
        why=why,
        footprint_bytes=pool.room.size(model.held) if model.held else pool.whole(model),
        footprint_from=pool.sizes.source(model.name),
        idle_seconds=max(0.0, now - model.candidate.last_use) if resident and model.used_at > -math.inf else None,
        evictable_in=max(0.0, model.at - now) if evictable else None,
        pinned=model.spec is not None and model.spec.pinned,
        versions=model.versions,
        leases=tuple(
            lease.LeaseOf(holder=held.holder, seconds_left=max(0.0, held.ends - now), in_flight=held.in_flight)
            for held in model.leases.values()
        ),
        waiters=len(model.waiters),
    )
