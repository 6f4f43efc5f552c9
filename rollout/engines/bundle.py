"""The interface of all engines, and its input."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stacks.command import EngineName
from stacks.images_lock import ImagesLock
from stacks.stack import Definition, Stack, StackId

from ..render import Rendered


@dataclass(frozen=True)
class Bundle:
    """One stack with everything that an engine needs, read and rendered once."""

    stack: Stack
    rendered: Rendered
    lock: ImagesLock
    definition: Path  # The file that the stack's configuration names.
    read_from: Path | None = None  # The file to read instead: a rollout's own copy.


class Engine(Protocol):
    """Applies one stack to the cluster of its data plane, and removes it."""

    @property
    def name(self) -> EngineName:
        """Its value of --engine."""

    @property
    def title(self) -> str:
        """Its name and version, for messages."""

    def render(self, stacks: Sequence[Stack], definition: Definition) -> list[Rendered]:
        """Return the objects of each stack as this engine makes them. Queries no cluster."""

    def check(self, stack: Stack, rendered: Rendered) -> None:
        """Raise CommandError if `up` would refuse a stack before it changes anything, such as another engine's."""

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Apply a stack, and show progress. Raise CommandError if the stack is then not as declared. `wait` waits until
        everything is ready. Returns False if nothing had to be changed."""

    def down(self, home: StackId, definition: Path) -> None:
        """Remove a stack, except its datasets and what holds them. Raise CommandError if that fails. The stack need not
        be in the definition any more. `definition` is the file that its configuration names."""
