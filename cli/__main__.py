"""`tidegate` with all of its commands, or `python -m cli` in a checkout."""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

ROOT = Path(__file__).resolve().parents[1]
# In a checkout, these packages have separate directories. When Tidegate is installed, all packages are side by side.
sys.path[:0] = [str(ROOT / part) for part in ("client", "contracts", "policies/eviction", "service")]


def main() -> None:
    """Run the command line."""
    from tidegate.__main__ import run

    def load() -> "Typer":
        from .app import app

        return app

    gc.set_threshold(100_000, 50, 1000)  # Rarely, because the many objects of a definition live until the end.
    run(load)


if __name__ == "__main__":
    main()
