"""A model repository, from which inference servers load what is published to it, whatever kind they are."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

READ_LIMIT: Final = 16 << 20  # bytes that `read` returns at most: it is for configurations and labels


@dataclass(frozen=True, order=True)
class StoredFile:
    """One file that lies in the repository."""

    path: str  # below the model's folder
    size: int  # bytes


@dataclass(frozen=True)
class Published:
    """What a published configuration says."""

    owner: int | None  # Version whose entry the configuration is of; None where this program did not publish it.
    served: tuple[int, ...]  # versions that are served; none where the configuration leaves that to the server
    aliases: dict[str, int]  # of versions that are served: what was withdrawn has none


class Configs(Protocol):
    """How a kind of servers is told which versions of a model to serve, and what aliases stand for. Pure."""

    CONFIG: str  # name of the file that says it
    NOT_READY: str  # what the servers say of a version that is being loaded, and of one whose load failed

    def published_config(
        self, entry_config: str, *, model: str, owner: int, served: Collection[int], aliases: Mapping[str, int]
    ) -> str:
        """Return the text that has servers serve these versions, of what the entry of `owner` says; or UsageError."""

    def closed_config(self, config: str) -> str:
        """Return the configuration of a new model whose files are to come: servers load nothing, and report nothing."""

    def withdrawn_config(self, config: str) -> str:
        """Return a configuration with no version, under which servers load nothing, and let go of what they have."""

    def read_published(self, text: str) -> Published:
        """Return what a published text says; raises UsageError where it cannot be read."""

    def config_differences(self, one: str, other: str) -> list[str]:
        """Return what differs in meaning, a field a line."""

    def loaded_at_once(self, one: str | None, other: str) -> int:
        """Return how many versions are loaded at one time, at the most, while one text takes another's place."""
