"""The order in which to request leases at the replicas of a pool, for proxies and the eviction policy's simulator.

Pure functions of data that every proxy sees, so that proxies agree without communication.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from .lease import State

ALIKE_SECONDS = 1.0  # Difference between two waits that does not matter.
TOGETHER_SECONDS = 1.0  # Calls within so many seconds share a proxy's request for a lease, and its wait.


class NotNow(NamedTuple):
    """Why a replica grants no lease now. Of several, the smallest counts."""

    silent: bool  # Whether its policy did not respond.
    retry_after: float
    why: str
    reason: str = ""  # One word.
    replica: str = ""


def weight(replica: str, key: bytes) -> bytes:
    """Return the weight of a replica, by its name, for a key. The largest wins, at every proxy. Rendezvous hashing:
    Thaler and Ravishankar, IEEE/ACM TON 6(1), 1998."""
    return blake2b(replica.encode() + b"\0" + key).digest()


def ranked(model: str, names: Iterable[str]) -> list[str]:
    """Return replicas by rank for a model, the best first. One replica more or less moves one in N of the models."""
    key = model.encode()
    return sorted(names, key=lambda name: weight(name, key), reverse=True)


def next_ask(replicas: int, refusals: Sequence[NotNow]) -> tuple[int, float | None] | None:
    """Return where to request a lease next, after these refusals, given the number of replicas, the best one first.

    The result is the replica's number, and for how many seconds its policy may wait for memory (None: the pool's own
    limit). None means that no replica is left.

    Each replica first gets a request for memory that is free now. If none has any, the one with the shortest wait gets
    a request that waits. Of those within a second, the best replica gets it. If a replica is loading the model for
    longer than its callers wait, no further one gets a request. It would take as long, and evict other models.
    """
    tried = len(refusals)
    if refusals and refusals[-1].reason == State.LOADING:
        return None
    if tried < replicas:
        return tried, 0.0 if replicas > 1 else None
    if 1 < replicas == tried and not (soonest := min(refusals)).silent:
        latest = soonest._replace(retry_after=soonest.retry_after + ALIKE_SECONDS)
        return next(place for place, each in enumerate(refusals) if each <= latest), None
    return None
