"""Files in the artifact store, by the URI that the registry gives: streamed through MLflow's server, or straight.

Memory is a few chunks, whatever a file's size. Nothing is guessed from an address, and nothing is unpickled.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from .sending import Sending


class Artifacts(Protocol):
    """The artifacts below one URI. Paths are below it, with `/` between their steps, and are no folders."""

    @property
    def where(self) -> str:
        """The URI for messages, without secrets."""
        ...

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """Return the files of one folder with their sizes in bytes, and its folders, all below the URI; not deeper."""
        ...

    def read(self, path: str) -> AbstractContextManager[Iterator[bytes]]:
        """Open a file; yields its chunks. NotFoundError, RefusedError, UnreachableError, also between chunks."""
        ...

    def write(self, path: str, content: Sending) -> None:
        """Write a file, whole or not at all; one that is there is replaced."""
        ...
