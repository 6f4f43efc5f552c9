"""The file cache of a simulated replica.

As in the stager, a load makes a copy if there is none and it fits. For that the least recently read copies are removed.
Files are as large as their model is in memory.
"""

from .trace import TracedModel


class SimulatedTier:
    """A bounded directory, from which loads are faster."""

    def __init__(self, size_bytes: int, speedup: float) -> None:
        self._size, self._speedup = size_bytes, speedup
        self._copies: dict[str, tuple[int, float]] = {}
        """The bytes of each copy, and until when a load reads it. The least recently read comes first."""

    def load(self, model: TracedModel, now: float) -> tuple[float, float]:
        """Return the seconds of a load, and how many of them the next load saves because its files are cached."""
        near = model.load_seconds / self._speedup
        seconds = near if model.name in self._copies else model.load_seconds
        if model.name not in self._copies and not self._make_room(model.footprint_bytes, now):
            return seconds, 0.0
        self._copies.pop(model.name, None)
        self._copies[model.name] = model.footprint_bytes, now + seconds
        return seconds, seconds - near

    def _make_room(self, needed: int, now: float) -> bool:
        lacking = sum(size for size, _ in self._copies.values()) + needed - self._size
        free = [name for name, (_, until) in self._copies.items() if until <= now]
        if lacking > sum(self._copies[name][0] for name in free):
            return False
        for name in free:
            if lacking <= 0:
                break
            lacking -= self._copies.pop(name)[0]
        return True
