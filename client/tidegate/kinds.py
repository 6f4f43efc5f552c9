"""The seam for kinds of inference servers: what an entry is for each of them, and where its versions are published.

An entry is a folder that is registered and deployed as one version of a model. All that knows one kind of server by
name stands in a folder of its name beside this module; a further kind is one such folder and one line in `KINDS`.
"""

from pathlib import Path
from typing import Final

from .errors import UsageError
from .openai.kind import OpenaiKind
from .server_kind import ServerKind
from .triton.kind import TritonKind

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
        return next((kind for kind in KINDS.values() if kind.entries_in(folder)), KINDS[TRITON])
    else:
        what = "this folder is empty"
    raise UsageError(what, where=folder, do=f"name a folder: {'; or '.join(kind.entry for kind in KINDS.values())}")
