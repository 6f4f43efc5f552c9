"""The leases of a stream on the further models that its messages ask for: all at the replica where the stream is."""

from time import monotonic

from ..forwarding import Forwarding
from ..residency.leases import Lease


class StreamLeases:
    """Each counts as in use from the first message for its model until the stream ends."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self._leases: tuple[Lease, ...] = ()

    def use(self, model: str) -> bool:
        """Count a message for a model; return False where a lease has to be acquired first."""
        leases, replica = self._forwarding.grant.route.pool.leases, self._forwarding.replica
        if leases is None:
            return True
        assert replica is not None
        lease = leases.at(model, replica, monotonic())
        if lease is not None:
            self._count(lease)
        return lease is not None

    async def acquire(self, model: str) -> None:
        """Acquire a lease, which may load the model, and count a message; raises Problem."""
        leases, replica = self._forwarding.grant.route.pool.leases, self._forwarding.replica
        assert leases is not None
        assert replica is not None
        self._forwarding.loading = True
        lease = await leases.acquire_at(model, replica)
        self._forwarding.loading = False
        self._count(lease)

    def _count(self, lease: Lease) -> None:
        if lease is self._forwarding.lease or lease in self._leases:
            lease.requests += 1
        else:
            lease.enter()
            self._leases += (lease,)

    def leave(self, now: float) -> None:
        """Count the end of all: the stream has ended."""
        for lease in self._leases:
            lease.leave(now)
