"""Which replica of a pool is asked for a lease, and in which order: by proxies, and by the eviction policy's simulator.

Pure functions of what every proxy sees, so that proxies agree without talking.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from .lease import State

ALIKE_SECONDS = 1.0  # Seconds that make no difference between two replicas which are to be waited for.
TOGETHER_SECONDS = 1.0  # Calls that a proxy gets within these ask for a lease together: one wait counts for all.


class NotNow(NamedTuple):
    """Why a lease cannot be had at a replica for now; of several the smallest counts."""

    silent: bool  # Whether its policy gave no answer.
    retry_after: float
    why: str
    reason: str = ""  # In one word.
    replica: str = ""


def weight(replica: str, key: bytes) -> bytes:
    """Return the weight of a replica, by its name, for a key: the largest one wins, at every proxy.

    Rendezvous hashing: Thaler and Ravishankar, IEEE/ACM TON 6(1), 1998.
    """
    return blake2b(replica.encode() + b"\0" + key).digest()


def ranked(model: str, names: Iterable[str]) -> list[str]:
    """Return replicas, the one where the model belongs first: one replica more or less moves one in N of the models."""
    key = model.encode()
    return sorted(names, key=lambda name: weight(name, key), reverse=True)


def next_ask(replicas: int, refusals: Sequence[NotNow]) -> tuple[int, float | None] | None:
    """Return which of so many replicas, the best one first, is asked next, after these refusals: its place, and for how
    many seconds it may have the caller wait for room (None: for the pool's own bound). None: no further one is.

    Each is asked for room that is there now; where none has any, the one that has it soonest is asked to wait: of those
    within a second the best one. None is asked after one that loads the model for longer than its callers wait: another
    would load it as long, and send others away for it.
    """
    asked = len(refusals)
    if refusals and refusals[-1].reason == State.LOADING:
        return None
    if asked < replicas:
        return asked, 0.0 if replicas > 1 else None
    if 1 < replicas == asked and not (soonest := min(refusals)).silent:
        latest = soonest._replace(retry_after=soonest.retry_after + ALIKE_SECONDS)
        return next(place for place, each in enumerate(refusals) if each <= latest), None
    return None
