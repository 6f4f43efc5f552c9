"""Engines: what makes an environment true on a cluster. Each is a module; `find_engine` says which one is there."""

from collections.abc import Callable, Mapping

from stacks.command import NO_ENGINE, WRONG_INPUT, CommandError
from stacks.problems import escaped

from .bundle import Bundle, Engine

__all__ = ["FINDERS", "Bundle", "Engine", "find_engine", "require_known"]


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


def require_known(wanted: str) -> None:
    """Raise CommandError for the name of an engine that there is not."""
    if wanted not in FINDERS:
        known = ", ".join(FINDERS)
        raise CommandError(f"there is no engine {escaped(wanted)}. --engine is one of: {known}.", WRONG_INPUT)


def find_engine(wanted: str | None = None, *, adopt: bool = False) -> Engine:
    """Return the engine of that name, or the first one that is there; raise CommandError where there is none.

    With `adopt` it takes over a stack that another engine brought up.
    """
    if wanted:
        require_known(wanted)
    for name in [wanted] if wanted else FINDERS:
        engine = FINDERS[name](adopt)
        if engine is not None:
            return engine
    raise CommandError("there is no `pulumi` on the PATH. Leave --engine out: Helm does it too.", NO_ENGINE)
