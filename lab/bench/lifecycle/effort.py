"""How much is done: what good figures need, or just enough to see that they can be had."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MB = 1_000_000
ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Effort:
    """How often, how many, how large."""

    runs: int
    """Turns that each side has."""
    small_files: int
    large_bytes: int
    """Of each of the large files."""
    registered_bytes: tuple[int, ...]
    """Sizes of the entries that are registered, the smallest first."""
    calls: int
    """In each turn of a caller."""


FULL: Final = Effort(5, 2000, 256 * MB, (100 * MB, 1000 * MB, 4000 * MB), 200)
QUICK: Final = Effort(1, 50, 4 * MB, (10 * MB, 20 * MB), 5)
SMALL_BYTES: Final = 4096
LARGE_FILES: Final = 4
