"""Engines: what makes an environment true on a cluster. Each is a module; `find_engine` says which one is there."""

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
"""How to find each engine, in the order in which they are tried; an engine's modules are imported when it is asked for.

Pulumi is the user's own, where it is on the PATH; Helm the user's own, or the one that is built for Tidegate.
"""


def find_engine(wanted: str | None = None, *, adopt: bool = False) -> Engine:
    """Return the engine of that name, or the first one that is there; raise CommandError where there is none.

    With `adopt` it takes over a stack that another engine brought up.
    """
    for name in [wanted] if wanted else FINDERS:
        engine = FINDERS[name](adopt)
        if engine is not None:
            return engine
    raise CommandError("there is no `pulumi` on the PATH. Leave --engine out: Helm does it too.", NO_ENGINE)
