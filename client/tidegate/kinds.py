"""The kinds of inference servers.

An entry is a directory that is registered and deployed as one version of a model. All code that is specific to one kind
is in the package of its name. To add a kind, add a package and one line to `KINDS`.
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
    """Return the kind `name` of a server. Raises UsageError if it is unknown."""
    if name not in KINDS:
        what, why = f"cannot publish to the server {server} of kind {name}", f"known kinds: {', '.join(KINDS)}"
        raise UsageError(what, why=why, do="install the client of the platform's version")
    return KINDS[name]


def kind_of_entry(folder: Path) -> ServerKind:
    """Return the kind of an entry, or of the entries in a directory. Triton if no kind recognises it. Raises UsageError
    if the directory is missing or empty."""
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "the directory does not exist"
    elif any(folder.iterdir()):
        return next((kind for kind in KINDS.values() if kind.entries_in(folder)), KINDS[TRITON])
    else:
        what = "the directory is empty"
    raise UsageError(what, where=folder, do=f"name a directory: {', or '.join(kind.entry for kind in KINDS.values())}")
