"""Typed Pulumi components of an inference environment, one file per noun. Any Pulumi program can use them.

They compose names, labels and files of what they are told, and compute nothing. They are told in the definition's own
types; classes named `…Args` stand where resolving adds something, and `stacks.resolve` fills them.
`components.evaluate` runs components in process, without Pulumi's engine; with placeholders for the arguments
(`components.values`) they become the chart's templates.
"""

from typing import TYPE_CHECKING

from .args import EnvironmentArgs
from .naming import Naming

if TYPE_CHECKING:
    from .environment import Environment

__all__ = ["Environment", "EnvironmentArgs", "Naming"]


def __getattr__(name: str) -> object:
    """Import the component when it is asked for: code that needs only its arguments need not load Pulumi's SDK."""
    if name != "Environment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .environment import Environment

    return Environment
