"""Policies: pure functions that choose who goes. `registry.find` finds one by its name."""

from .policy import Candidate, Choose, Policy, Shared, Tally, freed_by, take

__all__ = ["Candidate", "Choose", "Policy", "Shared", "Tally", "freed_by", "take"]
