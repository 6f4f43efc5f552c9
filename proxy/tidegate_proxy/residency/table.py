"""What this proxy has in one pool: its leases by replica and by model, and the order of replicas for each model."""

from collections.abc import Sequence
from time import monotonic

from ..upstream.replica import Replica
from .leases import Lease, ModelLeases
from .placement import Candidate, order
from .replica_leases import ReplicaLeases


class LeaseTable:
    """Finding the lease of a warm request costs one look-up in a dictionary."""

    def __init__(self) -> None:
        self.replicas: dict[Replica, ReplicaLeases] = {}
        self.models: dict[str, ModelLeases] = {}

    def find(self, model: str, now: float, tried: Sequence[Replica] = (), sequence: bool = False) -> Lease | None:
        """Return a lease under which a request may begin now: of several, that of the less busy replica.

        All requests of a `sequence` get the same one, for as long as it lasts.
        """
        found = self.models.get(model)
        if found is None:
            return None
        leases = found.leases
        if sequence:
            found.sequential = True
        if len(leases) == 1 and not tried:
            return leases[0] if leases[0].usable(now) else None
        able = [each for each in leases if each.replica not in tried and each.usable(now)]
        if found.sequential:
            return able[0] if able else None
        able = [each for each in able if self.stays(each.replica)] or able
        return min(able, key=lambda each: each.replica.in_flight, default=None)

    def at(self, model: str, replica: Replica, now: float) -> Lease | None:
        """Return the lease on a model at this very replica, if it is held."""
        here = self.replicas.get(replica)
        lease = None if here is None else here.leases.get(model)
        return lease if lease is not None and lease.held and now < lease.until else None

    def granted(self, lease: Lease) -> None:
        """Take in a lease that was granted."""
        found = self.models.get(lease.model)
        if found is None:
            found = self.models[lease.model] = ModelLeases(monotonic())
        if lease not in found.leases:
            found.leases.append(lease)
            if found.sequential:  # the one before could not be used: sequences do not go back to it
                for other in found.leases[:-1]:
                    self.replicas[other.replica].drop(other)

    def dropped(self, lease: Lease) -> None:
        """Forget a lease that is held no more."""
        found = self.models.get(lease.model)
        if found is not None and lease in found.leases:
            found.leases.remove(lease)

    def stays(self, replica: Replica) -> bool:
        """Tell whether a replica is there to stay: listed, with a policy that answers and grants leases."""
        here = self.replicas.get(replica)
        return here is not None and replica.listed and here.accepts and not here.silent

    def in_order(self, model: str, tried: Sequence[Replica] = ()) -> list[ReplicaLeases]:
        """Return where to ask for a lease, the best first: of the replicas that take requests and were not tried."""
        now = monotonic()
        by_name = {
            replica.name: here
            for replica, here in self.replicas.items()
            if replica not in tried and replica.breaker.allows(now)
        }
        candidates = [Candidate(name, self.stays(each.replica), each.is_warm(model)) for name, each in by_name.items()]
        return [by_name[name] for name in order(model, candidates)]
