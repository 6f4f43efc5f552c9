"""The seam for kinds of inference servers: what an entry is for each of them, and where its versions are published.

An entry is a folder that is registered and deployed as one version of a model. All that knows one kind of server by
name stands in a folder of its name beside this module; a further kind is one such folder and one line in `KINDS`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from pydantic import BaseModel

from .errors import UsageError
from .findings import Finding, ServerHas
from .openai.kind import OpenaiKind
from .publishing import Repository
from .repository import Configs, StoredFile
from .triton.kind import TritonKind

if TYPE_CHECKING:
    from .calling.proxy import ProxyClient
    from .registry.golden import Golden


class ServerKind(Protocol):
    """One kind of inference server. Nothing that is in an entry is ever run."""

    entry: str  # Whose folder an entry is, and what is in it: a phrase for messages.
    follows_repository: bool
    """Whether its servers look at the repository, and serve what its configuration says; others load what the
    definition names, when they start."""
    speaks_v2: bool  # Whether models are called by KServe v2, as client models do it, and tell its statistics.

    def recognises(self, folder: Path) -> bool:
        """Tell whether a folder seems to be an entry, or a repository of entries, of this kind."""

    def entries_in(self, folder: Path) -> list[Path]:
        """Return the entries in a repository, or the folder itself where it is an entry."""

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

        `about` is of `CallOptions`. Raises TidegateError.
        """

    def show(self, folder: Path) -> BaseModel:
        """Describe an entry: its tensors, its versions, and how the server will run it. Raises UsageError."""

    def print_entry(self, shown: Any) -> None:
        """Print for people what `show` returned."""

    def open_repository(self, where: Path | str) -> Repository:
        """Open the model repository in a folder or at the URL of an object store, to publish versions to it."""

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

    def needs_gpu(self, entry_config: str) -> str | None:
        """Return what of an entry runs on GPUs only, by its name; None where nothing does."""

    def code_backend(self, entry_config: str, files: Iterable[StoredFile]) -> str | None:
        """Return the backend of an entry whose files are code without its weights; None where they may hold them."""

    def alias_of(self, config: Mapping[str, Any], alias: str) -> str | None:
        """Return the version that an alias stands for by a configuration, as a server tells it in JSON."""

    def counts(self, statistics: Mapping[str, Any]) -> dict[str, float]:
        """Return what a replica has counted of a version since it was loaded, by what it tells as its statistics.

        `requests` that were answered, `failures`, `rows` in them; the seconds that requests took (`seconds`), waited
        for their turn (`queued`) and were computed (`computed`); when the last one came (`last_used`, Unix time, or 0).
        """

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        """Check that two versions, by their entries' configurations, can be served beside each other."""


TRITON: Final = "triton"
KINDS: Final[dict[str, ServerKind]] = {TRITON: TritonKind(), "openai": OpenaiKind()}
"""By the `kind` of a server in `environments.json`."""


def kind_of_server(name: str, server: str) -> ServerKind:
    """Return the kind `name` of a server; raises UsageError, which names the server, where it is not known here."""
    if name not in KINDS:
        what, why = f"the server {server} is a {name}, which tidegate cannot publish to", f"it knows {', '.join(KINDS)}"
        raise UsageError(what, why=why, do="install the client that belongs to the platform")
    return KINDS[name]


def kind_of_entry(folder: Path) -> ServerKind:
    """Return the kind whose entry a folder seems to be; Triton where that cannot be told, which then says more.

    Raises UsageError where there is nothing to tell it by.
    """
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "there is no such folder"
    elif any(folder.iterdir()):
        return next((kind for kind in KINDS.values() if kind.recognises(folder)), KINDS[TRITON])
    else:
        what = "this folder is empty"
    raise UsageError(what, where=folder, do=f"name a folder: {'; or '.join(kind.entry for kind in KINDS.values())}")
