# ruff: noqa: ARG002 - defaults need no arguments
"""What a kind of inference server is to the rest of the client: see `kinds`."""

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
    """One kind of inference server; some methods have the answer of kinds that need none. No entry is ever run."""

    entry: str  # Whose folder an entry is, and what is in it: a phrase for messages.
    follows_repository: bool
    """Whether its servers look at the repository, and serve what its configuration says; others load what the
    definition names, when they start."""
    speaks_v2: bool  # Whether models are called by KServe v2, as client models do it, and tell its statistics.

    def entries_in(self, folder: Path) -> list[Path]:
        """Return the entries in a repository, or the folder itself where it is an entry; none if none seems to be."""

    def version_folder(self, entry: Path) -> str:
        """Return the folder of an entry's version, `.` for the entry's own; raises UsageError where it has no such."""

    def check(
        self, folder: Path, name: str | None = None, *, trusted: bool = False, **has: Unpack[ServerHas]
    ) -> list[Finding]:
        """Return what keeps a server from serving an entry as the model `name`, or differs from what seems to be meant.

        `trusted`: code that the entry may do without is no error. Raises UsageError.
        """

    def check_golden(self, folder: Path, golden: "Golden", where: str) -> None:
        """Check that an entry can be asked a golden request, and its answer compared; raises UsageError."""

    def ask(self, proxy: "ProxyClient", model: str, request: Mapping[str, Any], **about: Any) -> Mapping[str, Any]:
        """Send a golden request to a version; return the answer as `Golden.differences` takes it.

        `about` is `server`, `version` and `deadline`. Raises TidegateError.
        """

    @property
    def configs(self) -> Configs:
        """How its servers are told which versions to serve."""

    def check_staged(
        self, staged: Path, model: str, repository: Repository, *, bring: Callable[[str], str], **has: Unpack[ServerHas]
    ) -> list[Finding]:
        """Check an entry that was fetched, beside the models that are in the repository.

        `bring` tells the command by which another model comes there.
        """

    def check_backend(
        self, model: str, entry_config: str, files: Collection[StoredFile], backends: Collection[str] | None
    ) -> list[Finding]:
        """Check that a server has what runs an entry, of which no more than its configuration is at hand."""
        return []

    def needs_gpu(self, entry_config: str) -> str | None:
        """Return what of an entry runs on GPUs only, by its name; None where nothing does."""
        return None

    def code_backend(self, entry_config: str, files: Iterable[StoredFile]) -> str | None:
        """Return the backend of an entry whose files are code without its weights; None where they may hold them."""
        return None

    def alias_of(self, config: Mapping[str, Any], alias: str) -> str | None:
        """Return the version that an alias stands for by a configuration, as a server tells it in JSON."""
        return None

    def failures(self, statistics: Mapping[str, Any]) -> int:
        """Return how many calls of a version failed at a replica since it was loaded, by what it tells of itself."""
        return 0

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        """Check that two versions, by their entries' configurations, can be served beside each other."""
        return []
