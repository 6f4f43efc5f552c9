"""What is reported of Triton, and to whom."""

from collections.abc import Mapping
from typing import Protocol

from ..core.rules import Found
from .control import ModelIndex
from .memory import MODEL, Reading


class Reports(Protocol):
    """Who is told."""

    def load_ended(self, number: int, error: str | None, measured_bytes: int | None, versions: tuple[int, ...]) -> None:
        """A load has ended."""

    def unload_ended(self, number: int, error: str | None) -> None:
        """An unload has ended: the index says so of every name."""

    def memory_read(self, reading: Reading) -> None:
        """Memory was read."""

    def memory_is_blind(self, why: str) -> None:
        """Memory cannot be read any more; a reading says that it can again."""

    def triton_lost(self, why: str) -> None:
        """Triton has ended, and with it all that was under way."""

    def triton_back(self, found: Found) -> None:
        """Triton is there, and has this."""

    def resident(self) -> frozenset[str]:
        """Return the models that are thought to be READY."""

    def vanished(self, models: frozenset[str]) -> None:
        """Models that were thought to be READY are not, and nothing here was done to them."""

    def is_busy(self) -> bool:
        """Tell whether readings of memory are wanted often."""


def found_in(index: ModelIndex, served: Mapping[str, tuple[int, ...]]) -> Found:
    """Return what the index says, in the core's words; and what is served although its folder has gone."""
    loading = index.having("LOADING") - {MODEL}
    unloading = index.having("UNLOADING") - loading - {MODEL}
    resident = (index.having("READY") | (served.keys() - index.models.keys())) - loading - unloading - {MODEL}
    versions = {model: index.in_state(model, "READY") or served[model] for model in resident}
    return Found(tuple(sorted(resident)), tuple(sorted(loading)), tuple(sorted(unloading)), versions)


def growth(before: Reading | None, after: Reading | None) -> int | None:
    """Return by how many bytes memory grew; None where two readings cannot be compared."""
    if before is None or after is None or before.used_bytes is None or after.used_bytes is None:
        return None
    if (before.source, before.server) != (after.source, after.server):
        return None
    return max(0, after.used_bytes - before.used_bytes)
