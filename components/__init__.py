"""Typed Pulumi components of an inference environment, one file per noun. Any Pulumi program can use them.

They compose names, labels and files of what they are told, and compute nothing. They are told in the definition's own
types; classes named `…Args` stand where resolving adds something, and `stacks.resolve` fills them. `evaluate` runs
components in process, without Pulumi's engine; with placeholders for the arguments (`components.values`) they become
the chart's templates.
"""

from .environment import Environment, EnvironmentArgs
from .evaluate import evaluate
from .place import Place

__all__ = ["Environment", "EnvironmentArgs", "Place", "evaluate"]
