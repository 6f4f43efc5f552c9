"""The transitions between the states of a model. `core` changes a state only along these."""

from typing import Final, Literal, NamedTuple

from tidegate_contracts.lease import State

HOLDS_ROOM: Final = frozenset({State.LOADING, State.RESIDENT, State.DRAINING, State.UNLOADING, State.FREEING})
"""States in which a model's footprint is charged to the capacity."""

Cause = Literal[
    "added", "removed", "wanted", "unwanted", "found", "begun", "loaded", "failed", "evicted", "outdated", "kept",
    "drained", "unloaded", "freed", "gave-up", "allowed", "lost", "vanished",
]  # fmt: skip


class Transition(NamedTuple):
    """A change from one state to another, and its cause."""

    before: State
    cause: Cause
    after: State
    sentence: str


TRANSITIONS: Final = (
    Transition(State.UNKNOWN, "added", State.COLD, "The settings list the model, or the server has it at start."),
    Transition(State.COLD, "removed", State.UNKNOWN, "The settings no longer list the model."),
    Transition(State.QUEUED, "removed", State.UNKNOWN, "The same. Waiting callers get `unknown`."),
    Transition(State.QUARANTINED, "removed", State.UNKNOWN, "The same."),
    Transition(State.COLD, "wanted", State.QUEUED, "A caller requests a lease, or the model is pinned."),
    Transition(State.QUEUED, "unwanted", State.COLD, "No caller waits any more, and no memory was freed for it."),
    Transition(State.COLD, "found", State.RESIDENT, "The server has the model loaded at start, or when it is back."),
    Transition(State.COLD, "begun", State.LOADING, "The server is loading the model at start. The policy watches it."),
    Transition(State.QUEUED, "begun", State.LOADING, "Memory is free, and it is the model's turn."),
    Transition(State.LOADING, "loaded", State.RESIDENT, "The load has succeeded. All waiting callers get a lease."),
    Transition(
        State.LOADING, "failed", State.UNLOADING, "The load has failed. The policy unloads what the server has of it."
    ),
    Transition(State.RESIDENT, "evicted", State.UNLOADING, "Its memory is needed, and it has no lease."),
    Transition(State.RESIDENT, "outdated", State.DRAINING, "The model changed, or the settings no longer list it."),
    Transition(State.RESIDENT, "vanished", State.UNLOADING, "The server no longer has the model. Its leases are void."),
    Transition(State.DRAINING, "kept", State.RESIDENT, "The settings want the loaded version again."),
    Transition(State.DRAINING, "drained", State.UNLOADING, "The last lease has ended."),
    Transition(State.UNLOADING, "unloaded", State.FREEING, "The server confirms the unload, perhaps after a retry."),
    Transition(State.FREEING, "freed", State.COLD, "Its memory is free, or the missing part was charged as leaked."),
    Transition(State.COLD, "gave-up", State.QUARANTINED, "It failed to load too often."),
    Transition(State.QUARANTINED, "allowed", State.COLD, "The model changed, or the server has it loaded after all."),
    *(
        Transition(state, "lost", State.COLD, "The server ended. Nothing is loaded, and leases are void.")
        for state in State
        if state in HOLDS_ROOM
    ),
)

AFTER: Final = {(step.before, step.cause): step.after for step in TRANSITIONS}
"""The next state, by state and cause. Other transitions do not happen."""
