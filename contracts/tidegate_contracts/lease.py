"""Leases: what a holder (one pool of one proxy) and the eviction policy beside a server say to each other.

HTTP with JSON bodies on `eviction_process.LEASE_PORT`. Each message carries `Authorization: Bearer` with the token that
the kubelet gives a proxy's pod for `AUDIENCE`. docs/eviction.md has the rules. Sizes are bytes, times are
seconds: a holder counts a lease from when it asked, the policy from when it granted, both by monotonic clocks.
"""

import re
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from .message import MOST_NUMBER, Message

ACQUIRE_PATH: Final = "/v1/leases/acquire"
RENEW_PATH: Final = "/v1/leases/renew"
RELEASE_PATH: Final = "/v1/leases/release"
MODELS_PATH: Final = "/v1/models"
"""GET: `Listing`."""
AUDIENCE: Final = "tidegate-leases"
"""The audience of a proxy's token: no other service accepts it."""
BUSY_SECONDS: Final = 300.0  # So far back a listing counts who was refused as busy.
MOST_BUSY: Final = 100
RENEWALS_PER_LEASE: Final = 3  # A holder renews so many times within a lease, so that one lost message loses nothing.

Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Holder = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256)]
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._:-]+")
_MOST_OF_A_POD = 48


def holder_name(pod: str, suffix: str) -> str:
    """Return the name of a holder in a pod; `suffix` (at most 15 characters, no dot) tells the pod's holders apart."""
    return f"{_NOT_OF_A_NAME.sub('-', pod)[:_MOST_OF_A_POD]}.{suffix}"


def is_holder_of(pod: str, holder: str) -> bool:
    """Tell whether `holder_name` makes this name for a pod."""
    return holder == holder_name(pod, holder.rpartition(".")[2])


class State(StrEnum):
    """Where a model is at a replica."""

    UNKNOWN = "unknown"
    """The pool has no such model, or has it no longer; no lease on it is granted."""
    COLD = "cold"
    """The pool has it, and it takes no memory."""
    QUEUED = "queued"
    """It is wanted, and waits for room, for its turn, for the end of a back-off, or for the server."""
    LOADING = "loading"
    """The server loads it, once for all callers that wait; its room is taken from the first moment on."""
    RESIDENT = "resident"
    """It is loaded: leases are granted at once."""
    DRAINING = "draining"
    """It is loaded, and is unloaded when its last lease has ended; no new one is granted."""
    UNLOADING = "unloading"
    """The server was told to unload it and has not confirmed it yet; its room is still taken."""
    FREEING = "freeing"
    """The server has unloaded it, but its memory was not seen to be back yet; its room is still taken."""
    QUARANTINED = "quarantined"
    """It failed to load too often: it is not loaded again until it changes, or the policy restarts."""


IN_MEMORY: Final[tuple[str, ...]] = (State.RESIDENT, State.DRAINING, State.LOADING, State.UNLOADING, State.FREEING)
"""The states in which a model takes room."""


class Acquire(Message):
    """Asks for a lease on a model; a cold one is loaded first, once for all callers that wait."""

    holder: Holder
    model: ModelName
    wait_seconds: Seconds | None = None
    """How long to wait at most; never longer than the pool's own bound, which counts without it."""
    room_seconds: Seconds | None = None
    """How long of that to wait until there is room; the load itself is waited for all the same."""
    spare: bool | None = None
    """Only if it takes nothing from others: there is room beside what is waited for, and nothing is evicted for it."""


class Granted(Message):
    """200. The model is resident, and stays for `lease_seconds` from when the holder asked."""

    outcome: Literal["granted"] = "granted"
    incarnation: str  # Which start of the policy and its server this lease belongs to: of another one, it is void.
    lease_seconds: Seconds
    versions: tuple[int, ...]
    waited_seconds: Seconds = 0.0  # What of the time was waiting for the load.
    serial: Annotated[int, Field(ge=0)] = 0
    """Greater than that of every earlier grant of this incarnation, for a `Release` to name; 0: there is none."""


BusyReason = Literal[
    "no-room", "queued", "loading", "draining", "unloading", "freeing", "load-failed", "restarting", "server-away",
    "leaving",
]  # fmt: skip
"""Why: there is no room · the model waits for its turn · it is being loaded, or unloaded first · its load failed and is
tried again later · the server is restarted, or not there · the replica leaves."""


class Busy(Message):
    """503: there is no room now, or the load takes longer than the wait. `retry_after` is when it may succeed."""

    outcome: Literal["busy"] = "busy"
    retry_after: Seconds
    reason: BusyReason | None = None  # None of an older policy.
    why: str


class Unknown(Message):
    """404: the pool has no such model."""

    outcome: Literal["unknown"] = "unknown"
    why: str


class TooLarge(Message):
    """507: the model needs more than the slice has, whatever is evicted."""

    outcome: Literal["too-large"] = "too-large"
    needed_bytes: int
    capacity_bytes: int
    why: str


class Quarantined(Message):
    """424: the model failed to load too often; it is not loaded again until it changes, or the policy restarts."""

    outcome: Literal["quarantined"] = "quarantined"
    why: str


Refusal = Busy | Unknown | TooLarge | Quarantined
Answer = Annotated[Granted | Busy | Unknown | TooLarge | Quarantined, Field(discriminator="outcome")]
STATUS: Final = {"granted": 200, "busy": 503, "unknown": 404, "too-large": 507, "quarantined": 424}


class Use(Message):
    """How a holder uses a model."""

    in_flight: Count
    idle_seconds: Seconds  # Since the last request came or ended; 0 while one is under way.
    requests: Count = 0  # Since the last renewal: how often a model is used.


class Renew(Message):
    """Renews all leases of a holder at one replica; also sent without any, to learn what is resident."""

    holder: Holder
    incarnation: str = ""
    models: dict[ModelName, Use]


class Renewed(Message):
    """200. Every lease that is not lost lives for `lease_seconds` from when the holder asked."""

    incarnation: str
    lease_seconds: Seconds
    lost: tuple[str, ...] = ()  # Models whose lease is void: ask anew before the next request.
    resident: tuple[str, ...] = ()  # Models that a lease is had on at once.
    accepts: bool = True


class Release(Message):
    """Gives leases back before they end."""

    holder: Holder
    incarnation: str = ""
    models: tuple[ModelName, ...]
    serials: dict[ModelName, int]
    """Of the latest grants. The message may come late: it does not end a lease that was granted since.

    A model without a serial here keeps its lease."""


class LeaseOf(Message, extra="ignore"):
    """One holder's lease in the listing: seconds left and requests in flight."""

    holder: str
    seconds_left: float
    in_flight: int


class Listed(Message):
    """One model as the policy sees it."""

    model: str
    state: State
    state_seconds: float | None = None  # How long it has been in this state.
    why: str = ""
    failed_seconds: float | None = None  # How long ago its last load failed; None where none did since it was loaded.
    failed_why: str = ""  # Why that failed.
    footprint_bytes: int | None = None
    footprint_from: Literal["declared", "measured", "estimated", "unknown"] = "unknown"
    idle_seconds: float | None = None  # Since its last use; None if it was not used since it is resident.
    evictable_in: float | None = None
    """Seconds until it may be evicted; None where it may not be, or there is nothing to evict."""
    pinned: bool = False
    versions: tuple[int, ...] = ()
    leases: tuple[LeaseOf, ...] = ()
    waiters: int = 0
    busy: int = 0
    """How often it was busy in the last `BUSY_SECONDS`, `MOST_BUSY` at most; proxies ask once for many calls."""
    no_room_seconds: float | None = None
    """How long ago its callers were first refused for want of room, if it was not loaded since, and the last of them
    within `BUSY_SECONDS`; each time it is queued for a moment, and cold again."""


class Room(Message):
    """A slice's memory, and the eviction policy that keeps it."""

    policy: str
    pod: str = ""  # Where that is.
    capacity_bytes: int
    resident_bytes: int
    loading_bytes: int
    freeing_bytes: int
    leaked_bytes: int
    free_bytes: int


class Listing(Room):
    """What sits in a slice now."""

    incarnation: str
    models: tuple[Listed, ...]
