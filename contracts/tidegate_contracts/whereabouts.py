"""What a proxy answers of models, of all that a caller may inspect or of one: how each is at each replica, and why.

Clients are older than proxies: they pass over fields that they do not know, and know not every state.
"""

from typing import Final, Literal

from pydantic import AwareDatetime

from .lease import LeaseOf, Room, State
from .message import Message

WHEREABOUTS_PATH: Final = "/models"
"""GET: all models; `WHEREABOUTS_PATH/{model}`: those of this name, at most one of each server."""
PlaceState = State | Literal["failed", "unseen", "unreachable"]
"""`failed`: a server that loads its models by itself could not load it. `unseen`: the replica gets calls, but nobody
tells what it has in memory. `unreachable`: it gets no calls."""


class VersionFailure(Message, extra="ignore"):
    """A version that a replica could not load; where models are loaded on demand, the model's last load that failed."""

    version: int | None = None  # None where the server has loaded no version of the model.
    why: str  # In the server's words, short and without paths.
    since: AwareDatetime  # When the proxy first saw it; of a load on demand, when it failed.
    retrying: bool = False  # Whether the server is loading it again right now.


class Place(Message, extra="ignore"):
    """A model at one replica of its pool, or of that of a version."""

    pool: str | None = None  # Pool of the replica, where that is another than the model's own.
    replica: str  # Its address, for whoever looks after it: callers are not let there.
    state: PlaceState | str
    """`queued` is also a model for which there has been no room since then: it is cold but for moments."""
    since: AwareDatetime | None = None  # Since when it has been in this state; None where nobody knows.
    why: str = ""  # Why it is not resident, or what it waits for.
    versions: tuple[int, ...] = ()  # Those in memory.
    failures: tuple[VersionFailure, ...] = ()  # Until a load succeeds, or a newer version is loaded.
    seen_seconds: int | None = None  # Since its server was asked for this; None where that was just now.
    idle_seconds: float | None = None  # Since its last use; None if it was not used since it is resident.
    evictable_in: float | None = None  # Seconds until it may be evicted; None where it may not be.
    leases: tuple[LeaseOf, ...] = ()  # Proxies that hold it, by their names.
    waiters: int = 0  # Requests for leases that wait for it.
    busy: int = 0  # How many were refused as busy in the last five minutes, a hundred at most.
    footprint_bytes: int | None = None  # What it takes there, or would; None where nobody knows.


class VisibleModel(Message, extra="ignore"):
    """A model on one server; state, since, why and versions are those of the place where it is nearest to use."""

    model: str
    server: str
    pool: str
    loading: Literal["preload", "on-demand"]
    state: PlaceState | str
    since: AwareDatetime | None = None
    why: str = ""
    versions: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()


class SliceRoom(Room, extra="ignore"):
    """The memory of one replica that loads models on demand: what is there, and what takes it."""

    server: str
    pool: str
    replica: str


class Whereabouts(Message, extra="ignore"):
    """Models of an environment, as one of its proxies sees them."""

    environment: str
    models: tuple[VisibleModel, ...]
    slices: tuple[SliceRoom, ...] = ()
    """Of the pools of these models, as far as their policies answer. Others' models take room in them, too."""
