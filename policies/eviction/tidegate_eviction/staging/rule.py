"""What goes from a tier for other files, by the cost rule: what is cheap to copy again, and seldom used."""

from typing import Final

from ..core.outlook import Outlook
from ..policies import Candidate
from ..policies.registry import BUILT_IN

CHEAPEST: Final = BUILT_IN["cost-aware"]


def candidate(outlook: Outlook, model: str, size: int, read: float, now: float) -> Candidate:
    """Return a model's staged files, last read at a time, as the rule sees them: to copy them again takes as long as
    they are large."""
    known = outlook.uses.get(model)
    last_use = max(known.last_use if known else 0.0, read)
    return Candidate(model, size, last_use, now, float(size), known.gap_seconds if known else 0.0)
