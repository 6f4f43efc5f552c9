"""The core: it decides what is loaded and unloaded and who gets a lease, and does nothing else.

Synchronous and deterministic: no input or output, no clock, no threads, no logging. Every method is told `now`, seconds
of a monotonic clock, and hands back a `Step`: commands to carry out and events to tell of. The container, the
simulator and the property tests run this same code.
"""

from .residency import Residency
from .rules import Found, ModelSpec, PoolRules, WarmWindow
from .steps import (
    Allowed,
    Answered,
    Command,
    Event,
    Evicted,
    EvictionReason,
    Freed,
    Leaked,
    Load,
    LoadBegan,
    Loaded,
    LoadFailed,
    Overrun,
    PolicyFailed,
    Quarantined,
    Recycle,
    Recycling,
    Step,
    Ticket,
    Unload,
    UnloadFailed,
)

__all__ = [
    "Allowed",
    "Answered",
    "Command",
    "Event",
    "Evicted",
    "EvictionReason",
    "Found",
    "Freed",
    "Leaked",
    "Load",
    "LoadBegan",
    "LoadFailed",
    "Loaded",
    "ModelSpec",
    "Overrun",
    "PolicyFailed",
    "PoolRules",
    "Quarantined",
    "Recycle",
    "Recycling",
    "Residency",
    "Step",
    "Ticket",
    "Unload",
    "UnloadFailed",
    "WarmWindow",
]
