"""Engines: what makes an environment true on a cluster. Each is a module; `find_engine` says which one is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stacks.command import NO_ENGINE, WRONG_INPUT, CommandError
from stacks.images_lock import ImagesLock
from stacks.problems import escaped
from stacks.stack import Stack

if TYPE_CHECKING:
    from ..render import Rendered
    from .pulumi import PulumiCli


@dataclass(frozen=True)
class Bundle:
    """One stack with all that an engine needs of it, read and rendered once."""

    stack: Stack
    rendered: Rendered
    lock: ImagesLock
    """The digests of its images."""
    definition: Path
    """The file that the stack is known to come from."""
    read_from: Path | None = None
    """The file that was read instead, where somebody keeps its text."""


class Engine(Protocol):
    """Brings one stack up in the cluster of its data plane, and down again."""

    @property
    def name(self) -> str:
        """`pulumi` or `helm`, as ENGINE= says it."""

    @property
    def title(self) -> str:
        """Its name and version, for people."""

    def check(self, stack: Stack, rendered: Rendered) -> None:
        """Raise CommandError where `up` would refuse a stack before it changes anything, such as another engine's."""

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Bring a stack up, showing what happens; raise CommandError when it is not as declared.

        `wait` waits until everything is ready. Returns False when it is known that nothing had to be changed.
        """

    def down(self, bundle: Bundle) -> None:
        """Take a stack down, all but its datasets and what holds them; raise CommandError when that is not done."""


def pulumi_engine(adopt: bool = False) -> Engine | None:
    """Return the user's own Pulumi, when it is there."""
    from . import pulumi

    cli = pulumi.find()
    return None if cli is None else _Pulumi(cli, adopt)


def helm_engine(adopt: bool = False) -> Engine | None:
    """Return Helm: the user's own, or the one that is built for Tidegate."""
    from . import helm

    return helm.find(adopt)


class _Pulumi:
    name = "pulumi"

    def __init__(self, cli: PulumiCli, adopt: bool) -> None:
        self._cli = cli
        self._adopt = adopt

    @property
    def title(self) -> str:
        return str(self._cli)

    def check(self, stack: Stack, rendered: Rendered) -> None:
        from . import pulumi_stack

        pulumi_stack.check(stack, rendered, adopt=self._adopt)

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        from . import pulumi_stack

        del wait  # Pulumi always waits
        pulumi_stack.up(self._cli, bundle, adopt=self._adopt)
        return True  # what it leaves unchanged it says itself

    def down(self, bundle: Bundle) -> None:
        from . import pulumi_stack

        pulumi_stack.down(self._cli, bundle)


FINDERS: Mapping[str, Callable[[bool], Engine | None]] = {"pulumi": pulumi_engine, "helm": helm_engine}
"""How to find each engine, in the order in which they are tried."""


def require_known(wanted: str | None) -> None:
    """Raise CommandError for the name of an engine that there is not."""
    if wanted is not None and wanted not in FINDERS:
        raise CommandError(
            f"there is no engine {escaped(wanted)}. ENGINE is one of: {', '.join(FINDERS)}.", WRONG_INPUT
        )


def find_engine(wanted: str | None = None, *, adopt: bool = False) -> Engine:
    """Return the engine of that name, or the first one that is there; raise CommandError where there is none.

    With `adopt` it takes over a stack that another engine brought up.
    """
    require_known(wanted)
    for name in [wanted] if wanted else FINDERS:
        engine = FINDERS[name](adopt)
        if engine is not None:
            return engine
    raise CommandError("there is no `pulumi` on the PATH. Leave ENGINE out: Helm does it too.", NO_ENGINE)
