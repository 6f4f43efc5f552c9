"""Typed Pulumi components of an inference environment, one file per noun. Any Pulumi program can use them.

They compose names, labels and files from their arguments, and compute nothing. The arguments have the types of the
definition. Classes named `…Args` add what resolving adds, and `stacks.resolve` fills them.

`components.evaluate` runs components in process, without Pulumi's engine. With placeholders as arguments
(`components.values`) it turns them into the chart's templates.
"""

from typing import TYPE_CHECKING

from .args import EnvironmentArgs
from .naming import Naming

if TYPE_CHECKING:
    from .environment import Environment

__all__ = ["Environment", "EnvironmentArgs", "Naming"]


def __getattr__(name: str) -> object:
    """Import the component on first use, so that code that needs only its arguments does not load Pulumi's SDK."""
    if name != "Environment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .environment import Environment

    return Environment
