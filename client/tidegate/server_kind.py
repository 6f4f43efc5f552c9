# ruff: noqa: ARG002 - the defaults ignore their arguments
"""The interface of a kind of inference server. `kinds` lists the kinds."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from .findings import Finding, ServerHas
from .publishing import Repository
from .repository import Configs, StoredFile

if TYPE_CHECKING:
    from .calling.proxy import ProxyClient
    from .registry.golden import Golden


class ServerKind(Protocol):
    """One kind of inference server. Some methods have a default. None of them runs an entry."""

    entry: str  # A phrase for messages that describes an entry and its content.
    follows_repository: bool
    """Whether its servers poll the repository and serve what its configuration lists. Otherwise they load what the
    definition names when they start."""
    speaks_v2: bool  # Whether its models have the KServe v2 protocol, including statistics.

    def entries_in(self, folder: Path) -> list[Path]:
        """Return the entries in a repository, or the directory itself if it is an entry. Empty if there are none."""

    def version_folder(self, entry: Path) -> str:
        """Return the directory of an entry's version, `.` for the entry itself. Raises UsageError if it is missing."""

    def check(
        self, folder: Path, name: str | None = None, *, trusted: bool = False, **has: Unpack[ServerHas]
    ) -> list[Finding]:
        """Return the reasons why a server could not serve an entry as the model `name`, and likely mistakes in it.
        `trusted` accepts code that the entry does not need. Raises UsageError."""

    def check_golden(self, folder: Path, golden: "Golden", where: str) -> None:
        """Check that an entry can receive a golden request with a comparable response. Raises UsageError."""

    def ask(self, proxy: "ProxyClient", model: str, request: Mapping[str, Any], **about: Any) -> Mapping[str, Any]:
        """Send a golden request to a version, and return the response in the form that `Golden.differences` takes.
        `about` has `server`, `version` and `deadline`. Raises TidegateError."""

    @property
    def configs(self) -> Configs:
        """How its servers learn which versions to serve."""

    def check_staged(
        self, staged: Path, model: str, repository: Repository, *, bring: Callable[[str], str], **has: Unpack[ServerHas]
    ) -> list[Finding]:
        """Check a fetched entry with the repository's models. `bring` returns a command to deploy another one."""

    def check_backend(
        self, model: str, entry_config: str, files: Collection[StoredFile], backends: Collection[str] | None
    ) -> list[Finding]:
        """Check that a server has the backend of an entry, given only its configuration and file list."""
        return []

    def needs_gpu(self, entry_config: str) -> str | None:
        """Return the name of a part of an entry that runs only on GPUs, or None."""
        return None

    def code_backend(self, entry_config: str, files: Iterable[StoredFile]) -> str | None:
        """Return the backend if the entry's files can be code without its weights, else None."""
        return None

    def alias_of(self, config: Mapping[str, Any], alias: str) -> str | None:
        """Return the version of an alias in a configuration, as a server returns it in JSON."""
        return None

    def failures(self, statistics: Mapping[str, Any]) -> int:
        """Return how many calls of a version failed at a replica since it was loaded, from its statistics."""
        return 0

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        return []
