"""The transitions between the states of a model. `core` changes a state only along these."""

from typing import Final, Literal

from tidegate_contracts.lease import State

HOLDS_ROOM: Final = frozenset({State.LOADING, State.RESIDENT, State.DRAINING, State.UNLOADING, State.FREEING})
"""States in which a model's footprint is charged to the capacity."""

Cause = Literal[
    "added", "removed", "wanted", "unwanted", "found", "begun", "loaded", "failed", "evicted", "outdated", "kept",
    "drained", "unloaded", "freed", "gave-up", "allowed", "lost", "vanished",
]  # fmt: skip


TRANSITIONS: Final[tuple[tuple[State, Cause, State], ...]] = (
    (State.UNKNOWN, "added", State.COLD),  # The settings list the model, or the server has it at start.
    (State.COLD, "removed", State.UNKNOWN),  # The settings no longer list the model.
    (State.QUEUED, "removed", State.UNKNOWN),  # The same. Waiting callers get `unknown`.
    (State.QUARANTINED, "removed", State.UNKNOWN),  # The same.
    (State.COLD, "wanted", State.QUEUED),  # A caller requests a lease, or the model is pinned.
    (State.QUEUED, "unwanted", State.COLD),  # No caller waits any more, and no memory was freed for it.
    (State.COLD, "found", State.RESIDENT),  # The server has the model loaded at start, or when it is back.
    (State.COLD, "begun", State.LOADING),  # The server is loading the model at start. The policy watches it.
    (State.QUEUED, "begun", State.LOADING),  # Memory is free, and it is the model's turn.
    (State.LOADING, "loaded", State.RESIDENT),  # The load has succeeded. All waiting callers get a lease.
    (State.LOADING, "failed", State.UNLOADING),  # The policy unloads what the server has of it.
    (State.RESIDENT, "evicted", State.UNLOADING),  # Its memory is needed, and it has no lease.
    (State.RESIDENT, "outdated", State.DRAINING),  # The model changed, or the settings no longer list it.
    (State.RESIDENT, "vanished", State.UNLOADING),  # The server no longer has the model. Its leases are void.
    (State.DRAINING, "kept", State.RESIDENT),  # The settings want the loaded version again.
    (State.DRAINING, "drained", State.UNLOADING),  # The last lease has ended.
    (State.UNLOADING, "unloaded", State.FREEING),  # The server confirms the unload, perhaps after a retry.
    (State.FREEING, "freed", State.COLD),  # Its memory is free, or the missing part was charged as leaked.
    (State.COLD, "gave-up", State.QUARANTINED),  # It failed to load too often.
    (State.QUARANTINED, "allowed", State.COLD),  # The model changed, or the server has it loaded after all.
    *((state, "lost", State.COLD) for state in HOLDS_ROOM),  # The server ended. Nothing is loaded, and leases are void.
)
"""Changes from one state to another: the state before, the cause, the state after."""

AFTER: Final = {(before, cause): after for before, cause, after in TRANSITIONS}
"""The next state, by state and cause. Other transitions do not happen."""
