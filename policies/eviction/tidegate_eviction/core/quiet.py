"""Leases of a pool in which there is nothing to plan: granted, renewed and given back without a step, for simulations.

What steps would compute each time is computed once, when something else happens: until when leases live of which their
holder had nothing to say, and from when on models may be evicted.
"""

import math
from collections.abc import Iterable

from tidegate_contracts.lease import State

from . import leases
from .messages import Use
from .pool import Pool

_PLANNED = State.QUEUED, State.DRAINING, State.UNLOADING


class QuietLeases:
    """The leases of one pool, for as long as it is quiet."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to plan, whatever becomes of leases."""
        pool = self._pool
        return not (
            pool.dirty or not pool.ready or not pool.accepts or pool.warm or pool.next_but_leases() < math.inf
            or any(pool.by_state[state] for state in _PLANNED) or pool.free + pool.ledger.pending < 0
            or any(pool.models[name].state is State.COLD for name in pool.pinned)
        )  # fmt: skip

    @property
    def until(self) -> float:
        """When a model may be loaded ahead of a call: then it is quiet no more."""
        return self._pool.expected_at

    def grant(self, model: str, holder: str, now: float) -> bool:
        """Grant a lease on a model if it is resident; tell whether it is."""
        found = self._pool.by_state[State.RESIDENT].get(model)
        if found is None:
            return False
        self._pool.now = now
        leases.begin(self._pool, found, holder, 1)
        return True

    def renew(self, model: str, holder: str, use: Use, now: float, before: float) -> bool:
        """Renew a lease, which was renewed `before`; tell whether requests may still begin under it."""
        pool = self._pool
        pool.now = now
        found = pool.models[model]
        if found.state is State.RESIDENT and leases.prolong(pool, found, holder, use):
            return True
        if (lease := found.leases.get(holder)) is not None:
            lease.ends = max(lease.ends, before + pool.settings.lease_seconds)
        return False

    def release(self, model: str, holder: str, now: float) -> None:
        """Give a lease back before it ends."""
        self._pool.now = now
        found = self._pool.models[model]
        if (lease := found.leases.get(holder)) is not None:
            leases.forget(found, lease, now)

    def grant_again(self, model: str, holder: str, released: float, now: float) -> None:
        """Grant a lease anew that was given back some time before."""
        lease = self._pool.models[model].leases[holder]
        if lease.in_flight:
            leases.used(self._pool.models[model], released, 0)
        lease.in_flight = lease.uses = 0
        self.grant(model, holder, now)

    @property
    def pressed_until(self) -> float:
        """Until when renewals may take leases away that were used a moment ago."""
        return self._pool.pressed_until

    def end(self, holder: str, models: Iterable[str], at: float) -> None:
        """Be quiet no more: the leases on these models were renewed last at some time."""
        pool = self._pool
        for name in models:
            lease = pool.models[name].leases[holder]
            lease.ends = max(lease.ends, at + pool.settings.lease_seconds)
        for model in pool.by_state[State.RESIDENT].values():
            pool.refresh(model)
