"""Engines: what makes an environment true on a cluster. Each is a module; `find_engine` says which one is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stacks.stack import Stack

if TYPE_CHECKING:
    from .pulumi import PulumiCli


class Engine(Protocol):
    """Brings one stack up in the cluster of its data plane."""

    @property
    def title(self) -> str:
        """Its name and version, for people."""

    def up(self, stack: Stack, definition: Path) -> int:
        """Bring a stack up, streaming what happens to the terminal; return an exit code, 0 when all is as declared."""


def pulumi_engine() -> Engine | None:
    """Return the user's own Pulumi, when it is there."""
    from . import pulumi

    cli = pulumi.find()
    return None if cli is None else _Pulumi(cli)


class _Pulumi:
    def __init__(self, cli: PulumiCli) -> None:
        self._cli = cli

    @property
    def title(self) -> str:
        return str(self._cli)

    def up(self, stack: Stack, definition: Path) -> int:
        from . import pulumi

        return pulumi.up(self._cli, stack, definition)


FINDERS: Sequence[Callable[[], Engine | None]] = (pulumi_engine,)
"""How to find each engine, in the order in which they are tried."""


def find_engine() -> Engine | None:
    """Return the first engine that is there."""
    return next((engine for find in FINDERS if (engine := find()) is not None), None)
