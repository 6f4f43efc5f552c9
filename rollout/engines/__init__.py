"""Engines: what makes an environment true on a cluster. Each is a module; `find_engine` says which one is there."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from stacks.command import NO_ENGINE, CommandError

from .bundle import Bundle, Engine

__all__ = ["FINDERS", "Bundle", "Engine", "find_engine"]


def _found(name: str, adopt: bool) -> Engine | None:
    module: Any = import_module(f"{__name__}.{name}")
    engine: Engine | None = module.find(adopt)
    return engine


FINDERS: Mapping[str, Callable[[bool], Engine | None]] = {name: partial(_found, name) for name in ("pulumi", "helm")}
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
