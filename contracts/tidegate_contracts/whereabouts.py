"""A proxy's response about models, all that a caller can inspect or one: their states at each replica, with reasons.

Clients can be older than proxies. They ignore unknown fields and must accept unknown states.
"""

from typing import Final, Literal

from pydantic import AwareDatetime

from .lease import LeaseOf, Room, State
from .message import Message

WHEREABOUTS_PATH: Final = "/models"
"""GET: all models. `WHEREABOUTS_PATH/{model}`: those of this name, at most one of each server."""
PlaceState = State | Literal["failed", "unseen", "unreachable"]
"""`failed`: a server that loads its models by itself could not load it. `unseen`: the replica gets calls, but its
loaded models are unknown. `unreachable`: it gets no calls."""


class VersionFailure(Message, extra="ignore"):
    """A version that a replica could not load. On demand, the model's last load if it failed."""

    version: int | None = None  # None if the server has loaded no version of the model.
    why: str  # In the server's words, short and without paths.
    since: AwareDatetime  # When the proxy first saw it. On demand, when the load failed.
    retrying: bool = False  # Whether the server is loading it again now.


class Place(Message, extra="ignore"):
    """A model at one replica of its pool, or of the pool of a version."""

    pool: str | None = None  # Pool of the replica, if that is not the model's own.
    replica: str  # Its address, for operators. Callers cannot connect to it.
    state: PlaceState | str
    """`queued` includes a model that has had no memory since then, although it is cold most of the time."""
    since: AwareDatetime | None = None  # Start of this state. None if unknown.
    why: str = ""  # Why it is not resident, or what it waits for.
    versions: tuple[int, ...] = ()  # Those in memory.
    failures: tuple[VersionFailure, ...] = ()  # Until a load succeeds, or a newer version is loaded.
    seen_seconds: int | None = None  # Since the server's last report. None if that was just now.
    idle_seconds: float | None = None  # Since its last use. None if it was not used since it became resident.
    evictable_in: float | None = None  # Seconds until it can be evicted. None if it cannot be.
    leases: tuple[LeaseOf, ...] = ()  # Proxies that hold it, by their names.
    waiters: int = 0  # Requests for leases that wait for it.
    busy: int = 0  # Refusals as busy in the last five minutes, at most a hundred.
    footprint_bytes: int | None = None  # Its memory there, or the memory it would need. None if unknown.


class VisibleModel(Message, extra="ignore"):
    """A model on one server. State, since, why and versions are those of the place where it is nearest to use."""

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
    """The memory of one replica that loads models on demand, by use."""

    server: str
    pool: str
    replica: str


class Whereabouts(Message, extra="ignore"):
    """Models of an environment, as one of its proxies sees them."""

    environment: str
    models: tuple[VisibleModel, ...]
    slices: tuple[SliceRoom, ...] = ()
    """The slices of these models' pools whose policies respond. Other models use memory in them, too."""
