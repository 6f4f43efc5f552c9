"""Leases: the messages between a holder (one pool of one proxy) and the eviction policy of a server.

HTTP with JSON bodies on `eviction_process.LEASE_PORT`. Each message carries `Authorization: Bearer` with the token that
the kubelet gives a proxy's pod for `AUDIENCE`. docs/eviction.md has the rules. Sizes are bytes, times are seconds. A
holder counts a lease from its request, the policy from its grant, both by monotonic clocks.
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
"""The audience of a proxy's token. No other service accepts it."""
BUSY_SECONDS: Final = 300.0  # Period for which a listing counts refusals as busy.
MOST_BUSY: Final = 100
RENEWALS_PER_LEASE: Final = 3  # A holder renews so many times within a lease, so that losing one message is harmless.

Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
Holder = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256)]
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._:-]+")
_MOST_OF_A_POD = 48


def holder_name(pod: str, suffix: str) -> str:
    """Return the name of a holder in a pod. `suffix` (at most 15 characters, no dot) differs between its holders."""
    return f"{_NOT_OF_A_NAME.sub('-', pod)[:_MOST_OF_A_POD]}.{suffix}"


def is_holder_of(pod: str, holder: str) -> bool:
    """Return whether `holder_name` makes this name for a pod."""
    return holder == holder_name(pod, holder.rpartition(".")[2])


class State(StrEnum):
    """The state of a model at a replica."""

    UNKNOWN = "unknown"
    """The pool has no such model, or has it no longer. It grants no lease on it."""
    COLD = "cold"
    """The pool has it, and it uses no memory."""
    QUEUED = "queued"
    """It is needed, and waits for memory, its turn, the end of a back-off, or the server."""
    LOADING = "loading"
    """The server loads it, once for all waiting callers. Its memory is reserved from the start."""
    RESIDENT = "resident"
    """It is loaded. Leases are granted at once."""
    DRAINING = "draining"
    """It is loaded, and is unloaded when its last lease has ended. No new one is granted."""
    UNLOADING = "unloading"
    """The server was ordered to unload it and has not confirmed it yet. Its memory is still in use."""
    FREEING = "freeing"
    """The server has unloaded it, but its memory has not been freed yet, as far as measured."""
    QUARANTINED = "quarantined"
    """It failed to load too often. It is not loaded again until it changes, or the policy restarts."""


IN_MEMORY: Final[tuple[str, ...]] = (State.RESIDENT, State.DRAINING, State.LOADING, State.UNLOADING, State.FREEING)
"""The states in which a model uses memory."""


class Acquire(Message):
    """Requests a lease on a model. A cold one is loaded first, once for all waiting callers."""

    holder: Holder
    model: ModelName
    wait_seconds: Seconds | None = None
    """Longest wait, at most the pool's own limit, which is the default."""
    room_seconds: Seconds | None = None
    """Part of the wait until memory is free. The wait for the load itself does not count."""
    spare: bool | None = None
    """Grant it only if that affects no others: memory is free beyond what they wait for, and nothing is evicted."""


class Granted(Message):
    """200. The model is resident, and stays for `lease_seconds` from the holder's request."""

    outcome: Literal["granted"] = "granted"
    incarnation: str  # The start of policy and server to which this lease belongs. In any other, it is void.
    lease_seconds: Seconds
    versions: tuple[int, ...]
    waited_seconds: Seconds = 0.0  # Time that was spent waiting for the load.
    serial: Annotated[int, Field(ge=0)] = 0
    """Greater than that of every earlier grant of this incarnation, for a `Release` to name. 0 means none."""


BusyReason = Literal[
    "no-room", "queued", "loading", "draining", "unloading", "freeing", "load-failed", "restarting", "server-away",
    "leaving",
]  # fmt: skip
"""Causes: no memory is free. The model waits for its turn, is being loaded, or is unloaded first. Its load failed and
is retried later. The server restarts, or is absent. The replica leaves."""


class Busy(Message):
    """503: no memory is free now, or the load takes longer than the wait. `retry_after` is when a retry can succeed."""

    outcome: Literal["busy"] = "busy"
    retry_after: Seconds
    reason: BusyReason | None = None  # None from an older policy.
    why: str


class Unknown(Message):
    """404: the pool has no such model."""

    outcome: Literal["unknown"] = "unknown"
    why: str


class TooLarge(Message):
    """507: the model needs more memory than the slice has, whatever is evicted."""

    outcome: Literal["too-large"] = "too-large"
    needed_bytes: int
    capacity_bytes: int
    why: str


class Quarantined(Message):
    """424: the model failed to load too often. It is not loaded again until it changes, or the policy restarts."""

    outcome: Literal["quarantined"] = "quarantined"
    why: str


Refusal = Busy | Unknown | TooLarge | Quarantined
Answer = Annotated[Granted | Busy | Unknown | TooLarge | Quarantined, Field(discriminator="outcome")]
STATUS: Final = {"granted": 200, "busy": 503, "unknown": 404, "too-large": 507, "quarantined": 424}


class Use(Message):
    """A holder's use of a model."""

    in_flight: Count
    idle_seconds: Seconds  # Since the last request began or ended. 0 while one is in progress.
    requests: Count = 0  # Since the last renewal: the frequency of use.


class Renew(Message):
    """Renews all leases of a holder at one replica. Also sent without any, to get the resident models."""

    holder: Holder
    incarnation: str = ""
    models: dict[ModelName, Use]


class Renewed(Message):
    """200. Every lease that is not lost is valid for `lease_seconds` from the holder's request."""

    incarnation: str
    lease_seconds: Seconds
    lost: tuple[str, ...] = ()  # Models whose lease is void: acquire a new one before the next request.
    resident: tuple[str, ...] = ()  # Models on which a lease is granted immediately.
    accepts: bool = True


class Release(Message):
    """Gives leases back before they end."""

    holder: Holder
    incarnation: str = ""
    models: tuple[ModelName, ...]
    serials: dict[ModelName, int]
    """Of the latest grants. The message can arrive late, and must not end a lease that was granted since.

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
    state_seconds: float | None = None  # Time in this state.
    why: str = ""
    failed_seconds: float | None = None  # Time since its last load failed. None if none failed since it was loaded.
    failed_why: str = ""  # The cause of that failure.
    footprint_bytes: int | None = None
    footprint_from: Literal["declared", "measured", "estimated", "unknown"] = "unknown"
    idle_seconds: float | None = None  # Since its last use. None if it was not used since it became resident.
    evictable_in: float | None = None
    """Seconds until it can be evicted. None if it cannot be, or is not loaded."""
    pinned: bool = False
    versions: tuple[int, ...] = ()
    leases: tuple[LeaseOf, ...] = ()
    waiters: int = 0
    busy: int = 0
    """Refusals as busy in the last `BUSY_SECONDS`, at most `MOST_BUSY`. Proxies send one request for many calls."""
    no_room_seconds: float | None = None
    """Time since its callers were first refused for lack of memory. None if it was loaded since, or if the last refusal
    is older than `BUSY_SECONDS`. Each time it is queued for a moment, and then cold again."""


class Room(Message):
    """A slice's memory, and the eviction policy that manages it."""

    policy: str
    pod: str = ""  # The policy's pod.
    capacity_bytes: int
    resident_bytes: int
    loading_bytes: int
    freeing_bytes: int
    leaked_bytes: int
    free_bytes: int


class Listing(Room):
    """The contents of a slice."""

    incarnation: str
    models: tuple[Listed, ...]
