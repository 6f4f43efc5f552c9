"""Tidegate's client: register models in MLflow, deploy them to dev, promote them to prod, roll back, call them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Tidegate

__all__ = ["Tidegate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import `Tidegate` when it is asked for: what only calls models goes without, and has no module but `calling`."""
    if name != "Tidegate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .api import Tidegate

    return Tidegate
