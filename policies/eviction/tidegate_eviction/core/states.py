"""What leads from one state of a model to another: written down here, once. `core` changes a state only along these."""

from typing import Final, Literal, NamedTuple

from tidegate_contracts.lease import State

HOLDS_ROOM: Final = frozenset({State.LOADING, State.RESIDENT, State.DRAINING, State.UNLOADING, State.FREEING})
"""States in which a model's footprint is charged to the capacity."""

Cause = Literal[
    "added", "removed", "wanted", "unwanted", "found", "begun", "loaded", "failed", "evicted", "outdated", "kept",
    "drained", "unloaded", "freed", "gave-up", "allowed", "lost", "vanished",
]  # fmt: skip


class Transition(NamedTuple):
    """From one state to another, and why."""

    before: State
    cause: Cause
    after: State
    sentence: str


TRANSITIONS: Final = (
    Transition(State.UNKNOWN, "added", State.COLD, "The settings name it, or the server has it at start."),
    Transition(State.COLD, "removed", State.UNKNOWN, "The settings name it no longer."),
    Transition(State.QUEUED, "removed", State.UNKNOWN, "The same; callers that wait are told that it is unknown."),
    Transition(State.QUARANTINED, "removed", State.UNKNOWN, "The same."),
    Transition(State.COLD, "wanted", State.QUEUED, "A caller asks for it, or it is pinned."),
    Transition(State.QUEUED, "unwanted", State.COLD, "No caller waits any more, and no room was made for it."),
    Transition(State.COLD, "found", State.RESIDENT, "The server has it at start, or when it is back."),
    Transition(State.COLD, "begun", State.LOADING, "The server has it loading at start: that is watched."),
    Transition(State.QUEUED, "begun", State.LOADING, "There is room, and it is its turn."),
    Transition(State.LOADING, "loaded", State.RESIDENT, "It is loaded; all callers that wait get a lease."),
    Transition(State.LOADING, "failed", State.UNLOADING, "The server failed to load it: what there is of it goes."),
    Transition(State.RESIDENT, "evicted", State.UNLOADING, "Its room is needed, and it has no lease."),
    Transition(State.RESIDENT, "outdated", State.DRAINING, "It changed, or the settings name it no longer."),
    Transition(State.RESIDENT, "vanished", State.UNLOADING, "The server has it no longer: its leases are void."),
    Transition(State.DRAINING, "kept", State.RESIDENT, "What is loaded is what the settings want, after all."),
    Transition(State.DRAINING, "drained", State.UNLOADING, "The last lease has ended."),
    Transition(State.UNLOADING, "unloaded", State.FREEING, "The server says so, if need be after another try."),
    Transition(State.FREEING, "freed", State.COLD, "Its memory is back, or what is not was charged as leaked."),
    Transition(State.COLD, "gave-up", State.QUARANTINED, "It failed to load too often."),
    Transition(State.QUARANTINED, "allowed", State.COLD, "It changed, or the server has it after all."),
    *(
        Transition(state, "lost", State.COLD, "The server ended: nothing is loaded, leases are void.")
        for state in State
        if state in HOLDS_ROOM
    ),
)

AFTER: Final = {(step.before, step.cause): step.after for step in TRANSITIONS}
"""Where a cause leads from a state; what is not here does not happen."""
