"""The states of a model at one replica, and what leads from one to another: written down here, once.

Metrics, `list`, the page and docs/eviction.md derive from it, and `core` changes a state only along a transition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a model is; the words are those of `tidegate_contracts.lease.State`."""

    UNKNOWN = "unknown"
    COLD = "cold"
    QUEUED = "queued"
    LOADING = "loading"
    RESIDENT = "resident"
    DRAINING = "draining"
    UNLOADING = "unloading"
    FREEING = "freeing"
    QUARANTINED = "quarantined"

    @property
    def sentence(self) -> str:
        """What it means."""
        return _SENTENCES[self]


_SENTENCES: Final = {
    State.UNKNOWN: "The pool has no such model, or has it no longer; no lease on it is granted.",
    State.COLD: "The pool has it, and it takes no memory.",
    State.QUEUED: "It is wanted, and waits for room, for its turn, for the end of a back-off, or for the server.",
    State.LOADING: "The server loads it, once for all callers that wait; its room is taken from the first moment on.",
    State.RESIDENT: "It is loaded: leases are granted at once.",
    State.DRAINING: "It is loaded, and is unloaded when its last lease has ended; no new one is granted.",
    State.UNLOADING: "The server was told to unload it and has not confirmed it yet; its room is still taken.",
    State.FREEING: "The server has unloaded it, but its memory was not seen to be back yet; its room is still taken.",
    State.QUARANTINED: "It failed to load too often: it is not tried until it changes, or is released by hand.",
}

HOLDS_ROOM: Final = frozenset({State.LOADING, State.RESIDENT, State.DRAINING, State.UNLOADING, State.FREEING})
"""States in which a model's footprint is charged to the capacity."""


class Cause(StrEnum):
    """What leads from one state to another."""

    ADDED = "added"
    REMOVED = "removed"
    WANTED = "wanted"
    UNWANTED = "unwanted"
    FOUND = "found"
    BEGUN = "begun"
    LOADED = "loaded"
    FAILED = "failed"
    EVICTED = "evicted"
    OUTDATED = "outdated"
    KEPT = "kept"
    DRAINED = "drained"
    UNLOADED = "unloaded"
    FREED = "freed"
    GAVE_UP = "gave-up"
    ALLOWED = "allowed"
    LOST = "lost"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Transition:
    """From one state to another, and why."""

    before: State
    cause: Cause
    after: State
    sentence: str


TRANSITIONS: Final = (
    Transition(State.UNKNOWN, Cause.ADDED, State.COLD, "The settings names it, or the server has it at start."),
    Transition(State.COLD, Cause.REMOVED, State.UNKNOWN, "The settings name it no longer."),
    Transition(State.QUEUED, Cause.REMOVED, State.UNKNOWN, "The same; callers that wait are told that it is unknown."),
    Transition(State.QUARANTINED, Cause.REMOVED, State.UNKNOWN, "The same."),
    Transition(State.COLD, Cause.WANTED, State.QUEUED, "A caller asks for it, or it is pinned or has a warm window."),
    Transition(State.QUEUED, Cause.UNWANTED, State.COLD, "No caller waits any more, and no room was made for it."),
    Transition(State.COLD, Cause.FOUND, State.RESIDENT, "The server has it at start, or when it is back."),
    Transition(State.COLD, Cause.BEGUN, State.LOADING, "The server has it loading at start: that is watched."),
    Transition(State.QUEUED, Cause.BEGUN, State.LOADING, "There is room, and it is its turn."),
    Transition(State.LOADING, Cause.LOADED, State.RESIDENT, "It is loaded; all callers that wait get a lease."),
    Transition(State.LOADING, Cause.FAILED, State.UNLOADING, "The server failed to load it: what there is of it goes."),
    Transition(State.RESIDENT, Cause.EVICTED, State.UNLOADING, "Its room is needed, and it has no lease."),
    Transition(State.RESIDENT, Cause.OUTDATED, State.DRAINING, "It changed, or the settings name it no longer."),
    Transition(State.RESIDENT, Cause.VANISHED, State.UNLOADING, "The server has it no longer: its leases are void."),
    Transition(State.DRAINING, Cause.KEPT, State.RESIDENT, "What is loaded is what the settings want, after all."),
    Transition(State.DRAINING, Cause.DRAINED, State.UNLOADING, "The last lease has ended."),
    Transition(State.UNLOADING, Cause.UNLOADED, State.FREEING, "The server says so, if need be after another try."),
    Transition(State.FREEING, Cause.FREED, State.COLD, "Its memory is back, or what is not was charged as leaked."),
    Transition(State.COLD, Cause.GAVE_UP, State.QUARANTINED, "It failed to load too often."),
    Transition(State.QUARANTINED, Cause.ALLOWED, State.COLD, "It changed, or was released by hand."),
    *(
        Transition(state, Cause.LOST, State.COLD, "The server ended: nothing is loaded, leases are void.")
        for state in State
        if state in HOLDS_ROOM
    ),
)  # fmt: skip

AFTER: Final[Mapping[tuple[State, Cause], State]] = {(step.before, step.cause): step.after for step in TRANSITIONS}
"""Where a cause leads from a state; what is not here does not happen."""
