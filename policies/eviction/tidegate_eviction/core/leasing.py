"""Leases: granted, renewed, released, ended; and what is learned of how models are used."""

import math
from collections.abc import Iterable, Mapping

from tidegate_contracts import lease as wire

from ..states import State
from .model import UNSURE, Lease, Model
from .pool import Pool

_RECENT = 0.2
"""How much the latest use counts in the mean time between uses. Anything from 0.05 to 0.5 chooses much the same."""
_LOADED = (State.RESIDENT, State.DRAINING)


class Leasing:
    """Who holds what. Leases are counted from when they were granted, by `pool.now`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._serial = 0
        """Of the latest grant."""

    def grant(self, model: Model, holder: str, waited: float, incarnation: str) -> wire.Granted:
        """Give a lease, or a longer one to who has one already; it counts as one use, and as in flight.

        Who has `waited` was counted when he asked.
        """
        pool = self._pool
        self.used(model, pool.now, 0 if waited else 1)
        lease = self._lease(model, holder, pool.rules.lease_seconds)
        lease.in_flight = max(1, lease.in_flight)
        self._serial += 1
        lease.serial = self._serial
        pool.refresh(model)
        return wire.Granted(
            incarnation=incarnation,
            lease_seconds=pool.rules.lease_seconds + waited,
            versions=model.versions,
            waited_seconds=waited,
            serial=lease.serial,
        )

    def hold(self, model: Model, seconds: float) -> None:
        """Count a model as leased, by nobody knows whom, for so long: it was found at a start."""
        self._lease(model, UNSURE, seconds).in_flight = 0
        self._pool.refresh(model)

    def renew(self, holder: str, uses: Mapping[str, wire.Use], *, void: bool) -> tuple[str, ...]:
        """Renew what is to be renewed, and return what is lost.

        `void`: the holder's leases are of another incarnation. What is in flight is not unloaded even then.
        """
        pool, lost = self._pool, []
        for name, use in uses.items():
            model = pool.models.get(name)
            if model is None or model.state not in _LOADED:
                lost.append(name)
                continue
            lease = model.leases.get(holder)
            idle = 0.0 if use.in_flight else use.idle_seconds
            self.used(model, pool.now - idle, use.requests)
            kept = not (void or pool.recycling or model.state is State.DRAINING or self._let_go(model, use))
            if lease is None and pool.leaving:
                kept = False
            if kept or use.in_flight:
                lease = self._lease(model, holder, pool.rules.lease_seconds)
            if lease is not None:
                lease.in_flight = use.in_flight
            if not kept:
                lost.append(name)
            if model.state is State.RESIDENT:
                pool.refresh(model)
        return tuple(lost)

    def release(self, holder: str, names: Iterable[str], serials: Mapping[str, int]) -> None:
        """End leases before their time, but for those that were granted anew since: the message was long on its way."""
        for name in names:
            model = self._pool.models.get(name)
            lease = model.leases.get(holder) if model else None
            if lease is not None and serials.get(name, lease.serial) >= lease.serial:
                self.end(lease, self._pool.now)

    def end(self, lease: Lease, at: float) -> None:
        """End a lease. Where requests were under way when we last heard, it was in use until now."""
        pool = self._pool
        model = pool.models[lease.model]
        del model.leases[lease.holder]
        if lease.in_flight:
            self.used(model, at, 0)
        if model.state is State.RESIDENT:
            pool.refresh(model)
        pool.dirty = True

    def is_live(self, lease: Lease) -> bool:
        """Tell whether a lease is still one."""
        model = self._pool.models.get(lease.model)
        return model is not None and model.leases.get(lease.holder) is lease

    def _lease(self, model: Model, holder: str, seconds: float) -> Lease:
        """Return a holder's lease that lives for at least so long from now on."""
        ends = self._pool.now + seconds
        lease = model.leases.get(holder)
        if lease is None:
            # Given anew by a renewal, it is newer than all that was granted: rather does it run out than end too early.
            lease = model.leases[holder] = Lease(model.name, holder, ends, 0, self._serial + 1)
            self._pool.alarm(ends, lease)
        else:
            lease.ends = max(lease.ends, ends)
        return lease

    def _let_go(self, model: Model, use: wire.Use) -> bool:
        """Tell whether a lease is better not renewed: it is cheap to ask anew, and room may be wanted."""
        pool = self._pool
        if use.in_flight or model.spec is None or model.spec.pinned or model.name in pool.warm:
            return False
        idle = pool.now - model.candidate.last_use
        if idle >= pool.rules.lease_seconds:
            return True
        return pool.now < pool.pressed_until and idle >= pool.idle_limit(model)

    def used(self, model: Model, at: float, requests: int) -> None:
        """Note requests up to a point in time; none: only that one was under way until then."""
        candidate = model.candidate
        candidate.last_use = max(candidate.last_use, at)
        if not requests or at <= model.used_at:
            return
        if model.used_at > -math.inf:
            gap = (at - model.used_at) / requests
            kept = (1 - _RECENT) ** requests if candidate.gap_seconds else 0.0
            candidate.gap_seconds = kept * candidate.gap_seconds + (1 - kept) * gap
        model.used_at = at
