"""What every engine is given, and what it can do."""

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
    """One stack with all that an engine needs of it, read and rendered once."""

    stack: Stack
    rendered: Rendered
    lock: ImagesLock
    definition: Path  # The file that the stack is known to come from.
    read_from: Path | None = None  # The file that was read instead, where a rollout keeps its text.


class Engine(Protocol):
    """Brings one stack up in the cluster of its data plane, and down again."""

    @property
    def name(self) -> EngineName:
        """What --engine names it."""

    @property
    def title(self) -> str:
        """Its name and version, for people."""

    def render(self, stacks: Sequence[Stack], definition: Definition) -> list[Rendered]:
        """Return the objects of each of these stacks as this engine makes them; no cluster is asked."""

    def check(self, stack: Stack, rendered: Rendered) -> None:
        """Raise CommandError where `up` would refuse a stack before it changes anything, such as another engine's."""

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Bring a stack up, showing what happens; raise CommandError when it is not as declared.

        `wait` waits until everything is ready. Returns False when it is known that nothing had to be changed.
        """

    def down(self, home: StackId, definition: Path) -> None:
        """Take down what stands there, all but datasets and what holds them; raise CommandError when that is not done.

        It need not be described any more; the definition is the one that it is known to come from.
        """
