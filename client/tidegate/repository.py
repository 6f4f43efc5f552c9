"""A model repository, from which inference servers load what is published to it, whatever kind they are."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tidegate_contracts.manifest import Manifest

from .parallel import Progress

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
        """Return the configuration with no version that there is: servers then load nothing of the model."""

    def withdrawn_config(self, config: str) -> str:
        """Return a configuration with no version, under which servers also let go of what they have loaded."""

    def read_published(self, text: str) -> Published:
        """Return what a published text says; raises UsageError where it cannot be read."""

    def published_path(self, path: str, number: int) -> str:
        """Return where a file of an entry lies below the model's folder, once it is published as version `number`."""

    def config_differences(self, one: str, other: str) -> list[str]:
        """Return what differs in meaning, a field a line."""

    def loaded_at_once(self, one: str | None, other: str) -> int:
        """Return how many versions are loaded at one time, at the most, while one text takes another's place."""


class Repository(Protocol):
    """One model repository. Every method may raise UnreachableError, and IntegrityError for links and special files."""

    @property
    def where(self) -> str:
        """Folder or URL of the repository."""

    @property
    def configs(self) -> Configs:
        """How its servers are told which versions to serve."""

    def models(self) -> list[str]:
        """Return the names of its models."""

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, ascending; none where there is no such model."""

    def files(self, model: str) -> list[StoredFile]:
        """Return every file of a model, in the order of their paths."""

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file; raises NotFoundError."""

    def read(self, model: str, path: str, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a small file; raises NotFoundError, and IntegrityError where it is larger."""

    def config(self, model: str) -> str | None:
        """Return the model's published configuration, if it has one."""

    def config_age(self, model: str) -> float:
        """Return the seconds since the configuration was written, by this machine's clock; raises NotFoundError."""

    def differences(self, model: str, number: int, manifest: Manifest, progress: Progress | None = None) -> list[str]:
        """Return how a published version differs from its manifest, a sentence each; none where every byte is right."""

    def strays(self, model: str, manifests: Mapping[int, Manifest]) -> list[str]:
        """Return what lies below a model and should not, a sentence each, by the manifests of its versions."""

    def lock(self, model: str, who: str) -> AbstractContextManager[None]:
        """Be the only one to change a model, which all below needs; raises BusyError, which names the holder.

        It is free again when the holder's process dies: at once where flock works, else within a minute (its lease).
        """

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        """Return a folder to fetch a version into, with what a killed run left; UnfinishedError without such room."""

    def publish(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None = None
    ) -> bool:
        """Bring a version in, once every byte of it has proved right, and then its configuration (`write_config`).

        False where it was there already; raises IntegrityError for other content.
        """

    def write_config(self, model: str, config: str) -> None:
        """Bring in a configuration, after what it needs, where it is not so already; NotFoundError lacking versions."""

    def remove_version(self, model: str, number: int) -> None:
        """Remove a version; raises RefusedError while the configuration needs it."""

    def withdraw(self, model: str) -> None:
        """Have the servers load nothing of a model, and let go of it; its files stay, for some may be being loaded."""

    def put_away(self, model: str, config: str) -> None:
        """Have servers find a model no more that was withdrawn, once all have let go of it; keep its files.

        Whoever is still loading them may hang. `config` is the configuration of before it was withdrawn.
        """
