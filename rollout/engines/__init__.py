"""Engines: the tools that apply a stack to a cluster. Each is a module, and `find_engine` returns an installed one."""

from collections.abc import Callable, Mapping

from stacks.command import NO_ENGINE, CommandError

from .bundle import Bundle, Engine

__all__ = ["FINDERS", "Bundle", "Engine", "find_engine"]


def _pulumi(adopt: bool) -> Engine | None:
    from . import pulumi

    return pulumi.find(adopt)


def _helm(adopt: bool) -> Engine | None:
    from . import helm

    return helm.find(adopt)


FINDERS: Mapping[str, Callable[[bool], Engine | None]] = {"pulumi": _pulumi, "helm": _helm}
"""How to find each engine, in the order of preference. A module is imported when its engine is needed.

Pulumi must be on the PATH. Helm is the one on the PATH, or one that Tidegate builds.
"""


def find_engine(wanted: str | None = None, *, adopt: bool = False) -> Engine:
    """Return the engine of that name, or the first that is installed. Raise CommandError if there is none. With `adopt`
    it takes over a stack that another engine applied."""
    for name in [wanted] if wanted else FINDERS:
        engine = FINDERS[name](adopt)
        if engine is not None:
            return engine
    raise CommandError("there is no `pulumi` on the PATH. Install it, or remove --engine to use Helm.", NO_ENGINE)
