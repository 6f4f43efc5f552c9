"""Eviction policies: pure functions that choose which models are evicted. `registry.find` returns one by its name."""

from .policy import Candidate, Choose, FreedBytes, Policy, SharedPart, freed_by, take

__all__ = ["Candidate", "Choose", "FreedBytes", "Policy", "SharedPart", "freed_by", "take"]
