"""The seam for kinds of inference servers: what an entry of a model repository is for each of them.

An entry is what is registered and deployed as one version of a model. All that knows one kind of server by name stands
in a folder of its name beside this module; a further kind is one such folder and one line in `KINDS`.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel

from .errors import UsageError
from .findings import Finding
from .publishing.repository import Repository
from .triton.kind import TritonKind


class Kind(Protocol):
    """One kind of inference server. Methods raise UsageError for what is no entry, and never run what is in one."""

    def make(self, name: str, sources: Sequence[Path], parent: Path, settings: Any = None) -> Any:
        """Make the entry `name` in the folder `parent` of a model's files; `settings` are in the kind's own terms."""

    def check(
        self,
        folder: Path,
        name: str | None = None,
        *,
        backends: Collection[str] | None = None,
        gpu: bool | None = None,
    ) -> list[Finding]:
        """Return what keeps a server from serving an entry as the model `name` (by default the folder's), or differs
        from what seems to be meant; `backends` and `gpu` are what the server has, where that is known.
        """

    def show(self, folder: Path) -> BaseModel:
        """Describe an entry: its tensors, its versions, and how the server will run it."""

    def open_repository(self, where: Path | str) -> Repository:
        """Open the model repository in a folder or at the URL of an object store, to publish versions to it."""


DEFAULT_KIND: Final = "triton"
"""The kind of an entry where no server is named."""
KINDS: Final[dict[str, Kind]] = {DEFAULT_KIND: TritonKind()}
"""By the `kind` of a server in `environments.json`."""


def kind_of(name: str) -> Kind:
    """Return the kind of servers called `name`; raises UsageError where this client does not know it."""
    if name in KINDS:
        return KINDS[name]
    known = ", ".join(sorted(KINDS))
    raise UsageError(
        f"this client does not know the kind of server {name!r}",
        why=f"it knows {known}",
        do="install the client that belongs to the platform",
    )
