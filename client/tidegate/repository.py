"""A model repository, from which inference servers of any kind load published models."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

READ_LIMIT: Final = 16 << 20  # bytes that `read` returns at most: for configurations and labels


@dataclass(frozen=True, order=True)
class StoredFile:
    """One file in the repository."""

    path: str  # below the model's directory
    size: int  # bytes


@dataclass(frozen=True)
class Published:
    """The content of a published configuration."""

    owner: int | None  # The version whose entry the configuration comes from. None if Tidegate did not publish it.
    served: tuple[int, ...]  # served versions. Empty if the configuration leaves the choice to the server.
    aliases: dict[str, int]  # of served versions. A withdrawn model has none.


class Configs(Protocol):
    """How a kind of server learns which versions of a model to serve, and what aliases mean. Pure functions."""

    CONFIG: str  # name of the configuration file
    NOT_READY: str  # the servers' error for a version that is loading, or whose load failed

    def published_config(
        self, entry_config: str, *, model: str, owner: int, served: Collection[int], aliases: Mapping[str, int]
    ) -> str:
        """Return the configuration that serves these versions, based on the entry of `owner`. Raises UsageError."""

    def closed_config(self, config: str) -> str:
        """Return the configuration of a new model before its files exist: servers load nothing and report nothing."""

    def withdrawn_config(self, config: str) -> str:
        """Return a configuration without versions: servers load nothing, and unload what they have."""

    def read_published(self, text: str) -> Published:
        """Parse a published configuration. Raises UsageError if it cannot be read."""

    def config_differences(self, one: str, other: str) -> list[str]:
        """Return the differences in meaning, one field per line."""

    def loaded_at_once(self, one: str | None, other: str) -> int:
        """Return the highest number of versions in memory at one time while `other` replaces `one`."""
