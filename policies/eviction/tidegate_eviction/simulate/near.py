"""The tier of a simulated replica: whose files are near, so that a load of them reads them fast.

As the stager has it: files are staged with the load that reads them first, if there is room or others may go for them.
Files take what their model takes of memory. Nothing is staged ahead.
"""

from ..core.outlook import Outlook
from ..staging.rule import CHEAPEST, candidate
from .trace import TracedModel


class SimulatedTier:
    """A bounded folder, and how many times faster loads from it are."""

    def __init__(self, size_bytes: int, speedup: float) -> None:
        self._size, self._speedup = size_bytes, speedup
        self._staged: dict[str, int] = {}
        self._read: dict[str, float] = {}  # When a load last read each model.

    def load(self, model: TracedModel, outlook: Outlook, now: float) -> tuple[float, float]:
        """Return how many seconds a load takes, and how many of these the next one need not, as its files are near."""
        near = model.load_seconds / self._speedup
        self._read[model.name] = now
        if model.name in self._staged:
            return near, 0.0
        if not self._make_room(model.footprint_bytes, outlook, now):
            return model.load_seconds, 0.0
        self._staged[model.name] = model.footprint_bytes
        return model.load_seconds, model.load_seconds - near

    def _make_room(self, needed: int, outlook: Outlook, now: float) -> bool:
        """Have others go: what is neither in memory nor on its way there, and then what models in memory have read."""
        lacking = sum(self._staged.values()) + needed - self._size
        if needed > self._size:
            return False
        idle = [name for name in self._staged if name not in outlook.held]
        for group in (idle, [name for name in self._staged if name in outlook.resident]):
            candidates = [candidate(outlook, name, self._staged[name], self._read[name], now) for name in group]
            if lacking > 0:
                for victim in CHEAPEST.choose(candidates, lacking, now):
                    lacking -= self._staged.pop(victim.name)
        return lacking <= 0
